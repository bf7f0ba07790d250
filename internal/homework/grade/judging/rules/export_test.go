package rules

import (
	"time"

	"llmmemory/grader"
	"llmmemory/internal/homework/ctree"
)

// In tests, the process that parses a submission may use 0.2 seconds of processor time instead of 10.
func init() {
	patience = 200 * time.Millisecond
	limits[0].max = 1 << 28 // of memory
}

// CheckHere checks a text in this process.
func CheckHere(source []byte) ([]Breach, error) {
	compiler, err := courseC()
	if err != nil {
		return nil, err
	}
	functions, err := ctree.ParseSource(compiler, "llm_memory.c", source, map[string][]byte{"llm_memory.h": grader.Header})
	return read(functions), err
}
