// Package view is the memory map. It records what a scheduler or the course's engine does to the blocks, step by step.
// It writes a page that plays the recording back. The page is one file with its script and style in it. Only the page
// of a Live recording makes requests: it asks its server for new steps.
//
// A Recorder watches a serve.Scheduler:
//
//	r := &view.Recording{Title: "...", System: "...", BlockSize: 16, NumGPUBlocks: 983, NumCPUBlocks: 1638}
//	rec, err := view.NewRecorder(r, scheduler, view.Limits{From: 60, Frames: 300})
//	for !rec.Full() {
//		scheduler.Step(&it)
//		rec.Observe(now, &it)
//		answered, _ = scheduler.Finish(answered[:0], done...)
//		rec.Finished(now, answered...)
//	}
//	view.Write(file, view.Alone(r))
//
// Course reads a text with calls of the course's engine (a trace), and records what each call does. Story plays a
// built-in Scene. A Scene is one recording, or two side by side with the same times of frames. A frame has the block
// tables. The page computes filled slots from them, and reference counts, except those in Frame.Counts.
package view

import (
	"errors"
	"fmt"

	"llmmemory/internal/scheduling/device"
)

// ErrRecording means that a page cannot show a recording. It also means that a scheduler's block tables cannot be read.
var ErrRecording = errors.New("bad recording")

// NullBlock is a value of Recording.Held.
const NullBlock = "vLLM's null block: a placeholder in block tables, which no request gets"

// A Recording is a run that can be played back.
type Recording struct {
	Title        string
	System       string // what ran
	Note         string // description for the reader, a sentence or two
	BlockSize    int    // tokens in a block
	NumGPUBlocks int    // blocks; for the course's engine, of the largest pool
	NumCPUBlocks int
	Held         string // the name of blocks that have a reference but are in no table

	// Course is set for the course's engine. Its tables have two levels, and its tokens are records.
	Course bool

	Frames []Frame
}

// A Frame is the state after one iteration of a scheduler or one call of the course's engine, and what happened in it.
type Frame struct {
	Now     float64  // seconds; 0 for the course's engine
	Call    string   // call of the course's engine, in C
	Said    []string // what happened, in sentences
	Refused bool     // the call failed and changed nothing

	Engine int // index of the trace's engine
	Blocks int // on the GPU; 0 while there is no engine

	Sequences                 []Sequence // sequences with blocks
	Waiting, Running, Swapped []int      // ids of the requests in each queue, in order

	SwapOut, SwapIn, Copies []device.Pair // as in serve.Iteration
	Hits                    []int32       // blocks that prefix hits found in this step
	Cached                  []int32       // free blocks that a prefix hit can find

	// Counts lists reference counts of blocks. It leaves out a count if it equals the number of table entries with the
	// block. For example, vLLM's null block has one reference and any number of table entries.
	Counts []Count

	// Records has the records of all blocks of the course's engine, in the order of the pool. It is nil if the pool
	// is too large to show them.
	Records []int32
}

// A Sequence is a sequence with blocks.
type Sequence struct {
	Request int // for the course's engine, its id
	Number  int // number among the request's sequences
	CPU     bool
	Tokens  int     // tokens whose keys and values have a slot
	Table   []int32 // block ids by logical block, from 0
}

// A Count is the reference count of a block.
type Count struct {
	CPU   bool
	Block int32
	Count int32
}

const maxCells = 1 << 16 // blocks of a page, which a browser draws in seconds

// checkPool returns an error if there are too many blocks for a page.
func (r *Recording) checkPool() error {
	if r.NumGPUBlocks > maxCells || r.NumCPUBlocks > maxCells-r.NumGPUBlocks {
		return fmt.Errorf("%w: %d blocks on the GPU and %d on the CPU, a page shows %d: record with fewer, or larger ones", ErrRecording, r.NumGPUBlocks, r.NumCPUBlocks, maxCells)
	}
	return nil
}
