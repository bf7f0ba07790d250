package rules

import (
	"time"

	"llmmemory/grader"
	"llmmemory/internal/homework/ctree"
)

// A reader that does not end has a fiftieth of its processor time here, which is many times what a
// submission takes.
func init() {
	patience = 200 * time.Millisecond
	limits[0].most = 1 << 28 // of memory
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
