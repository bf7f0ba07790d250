// Package rules checks the source of a submission for what the handout requires (MUST) or forbids. Other packages
// check what the submission does when it runs. A rule reports nothing about code that it does not understand.
//
// A breach costs points only if the code contradicts a sentence of the handout whatever the rest of the program does.
// Otherwise it is advice.
//
// A separate process parses the source (Serve), because a source can exhaust the memory and the stack of the parser.
package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"llmmemory/grader"
	"llmmemory/internal/homework/ctree"
	"llmmemory/internal/homework/grade/isolation/sandbox"
	"llmmemory/internal/homework/grade/isolation/supervise"
)

// A Breach is a contradiction to a sentence of the handout.
type Breach struct {
	Rule     string // null_check_first, memset_pool, l1_break, l2_break, l1_all_slots, free_pool, node_cast
	Sentence string // of the handout
	Function string // the function that contains the line
	Line     int    // of llm_memory.c
	Message  string
	Advice   bool // it costs nothing
	Task     int  // of the handout, 1 to 5
}

// ErrUnread means that the source could not be analysed because of the parser or its limits. This costs the submission
// no points.
var ErrUnread = errors.New("llm_memory.c was not read for the static rules")

// patience is the limit of processor time for the process that parses the source (cputime.Meter). In the tests, a
// fiftieth of it is enough.
var patience = 10 * time.Second

const (
	maxAnswer = 1 << 20
	maxSaid   = 4 << 10
)

type (
	request struct {
		Compiler ctree.Compiler
		Header   []byte
		Source   []byte
	}
	answer struct {
		Breaches []Breach
		Error    string
	}
)

var courseC = sync.OnceValues(func() (ctree.Compiler, error) { return ctree.AskCompiler("-std=c11", "-O2") })

// Check returns the breaches in the source of a submission that the compiler has accepted. It starts a second process
// of the running program to parse the source. Therefore the program's main must call Serve first.
func Check(source []byte) ([]Breach, error) {
	compiler, err := courseC()
	if err != nil {
		return nil, err
	}
	asked, err := json.Marshal(request{compiler, grader.Header, source})
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	child := exec.Command(self)
	child.Args = []string{word}
	child.Env = []string{}
	child.Dir = "/"
	child.Stdin = bytes.NewReader(asked)
	complaint := &sandbox.Head{Max: maxSaid}
	child.Stderr = complaint
	end, err := supervise.Run(child, func(pipe *os.File) { child.Stdout = pipe }, patience, supervise.Head(maxAnswer))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the reader of static rules: %w", err)
	case end.Over != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnread, end.Over)
	case end.Exit != 0:
		first, _, _ := strings.Cut(complaint.String(), "\n")
		return nil, fmt.Errorf("%w: the parser ended with %v: %.200q", ErrUnread, child.ProcessState, first)
	}
	var a answer
	if err := json.Unmarshal(end.Said, &a); err != nil {
		return nil, fmt.Errorf("%w: the parser's answer: %w", ErrUnread, err)
	}
	if a.Error != "" {
		return nil, fmt.Errorf("%w: %.500s", ErrUnread, a.Error)
	}
	return a.Breaches, nil
}
