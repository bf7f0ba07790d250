package rules

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"llmmemory/internal/homework/ctree"
)

const word = "llmgrade-reads" // as os.Args[0], it makes the grader's program a reader

// Serve parses a source if Check has started this process, and then ends the process. Otherwise it returns. main must
// call it first.
func Serve() {
	if len(os.Args) != 1 || os.Args[0] != word {
		return
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// limits are the resource limits of the process that parses a source. RLIMIT_DATA includes the stacks of its threads.
var limits = []struct {
	resource int
	max      uint64
}{
	{unix.RLIMIT_DATA, 1 << 30},
	{unix.RLIMIT_CPU, 3600}, // the grader ends it before
	{unix.RLIMIT_FSIZE, 0},
	{unix.RLIMIT_CORE, 0},
}

func serve() error {
	for _, l := range limits {
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: l.max, Max: l.max}); err != nil {
			return fmt.Errorf("limit %d: %w", l.resource, err)
		}
	}
	debug.SetMaxStack(256 << 20)
	debug.SetGCPercent(400) // the first collection is at 16 MiB instead of 4
	var asked request
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		return fmt.Errorf("what to read: %w", err)
	}
	var a answer
	functions, err := ctree.ParseSource(asked.Compiler, "llm_memory.c", asked.Source, map[string][]byte{"llm_memory.h": asked.Header})
	if err != nil {
		a.Error = err.Error()
	} else {
		a.Breaches = read(functions)
	}
	return json.NewEncoder(os.Stdout).Encode(a)
}
