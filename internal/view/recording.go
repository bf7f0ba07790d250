// Package view is the memory map: it records what a scheduler or the course's
// engine does to the blocks, step by step, and writes a page that plays it back.
// The page is one file, with its script and style inside; it asks for nothing,
// except one of a Live recording, which asks its server for the steps that come.
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
//	view.Write(file, r)
//
// Course plays a trace of the course's calls on package course. Story plays a built-in Scene:
// one recording, or two side by side on one clock. WriteScenes puts several into one page. The
// package decides nothing about memory: a frame shows the block tables, and reference counts and
// filled slots follow from those.
package view

import (
	"errors"
	"fmt"

	"llmmemory/internal/block"
	"llmmemory/internal/vllm/device"
)

// ErrRecording is wrapped if a recording contradicts itself or is too large for a page.
var ErrRecording = errors.New("bad recording")

// NullBlock is a value of Recording.Held.
const NullBlock = "vLLM's null block: a place holder in block tables, which no request gets"

// A Recording is a run that can be played back.
type Recording struct {
	Title        string
	System       string // what ran
	Note         string // description for the reader, a sentence or two
	BlockSize    int    // tokens in a block
	NumGPUBlocks int    // blocks; for the course's engine, of the largest pool
	NumCPUBlocks int
	Held         string // what a block is that has a reference but is in no table

	// Course is set for the course's engine: sequences have tables, a token is a record, and a
	// table has two levels.
	Course bool

	Frames []Frame
}

// A Frame is the state after one iteration or one call, and what was done.
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

	// Counts has the reference counts that differ from the number of table entries that name the
	// block: of the null block, or of blocks that a tester unlinked.
	Counts []Count

	// Records has the records of all blocks of a small pool of the course's engine, as in memory;
	// nil otherwise.
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

// mostCells is how many blocks a browser can draw in seconds; each is an element of the page.
const mostCells = 1 << 16

// checkPool checks the numbers of blocks.
func (r *Recording) checkPool() error {
	if r.BlockSize < 1 || r.NumGPUBlocks < 0 || r.NumCPUBlocks < 0 {
		return fmt.Errorf("%w: blocks of %d tokens, %d on the GPU, %d on the CPU", ErrRecording, r.BlockSize, r.NumGPUBlocks, r.NumCPUBlocks)
	}
	if r.NumGPUBlocks > mostCells || r.NumCPUBlocks > mostCells-r.NumGPUBlocks {
		return fmt.Errorf("%w: %d blocks on the GPU and %d on the CPU, a page shows %d: record with fewer, or larger ones", ErrRecording, r.NumGPUBlocks, r.NumCPUBlocks, mostCells)
	}
	return nil
}

// check returns an error if a page cannot show the recording.
func (r *Recording) check() error {
	if err := r.checkPool(); err != nil {
		return err
	}
	if len(r.Frames) == 0 {
		return fmt.Errorf("%w: it has no frames: record at least one step", ErrRecording)
	}
	for i := range r.Frames {
		if err := r.checkFrame(&r.Frames[i]); err != nil {
			return fmt.Errorf("%w: frame %d: %w", ErrRecording, i, err)
		}
	}
	return nil
}

func (r *Recording) checkFrame(f *Frame) error {
	if f.Blocks < 0 || f.Blocks > r.NumGPUBlocks {
		return fmt.Errorf("%d blocks on the GPU, which has at most %d", f.Blocks, r.NumGPUBlocks)
	}
	within := func(id int32, cpu bool) error {
		if n := r.device(f, cpu); id < 0 || int(id) >= n {
			return fmt.Errorf("block %d of %d on the %s", id, n, deviceName(cpu))
		}
		return nil
	}
	var wrong error
	see := func(id int32, cpu bool) {
		if err := within(id, cpu); err != nil && wrong == nil {
			wrong = err
		}
	}
	for i := range f.Sequences {
		s := &f.Sequences[i]
		for _, id := range s.Table {
			if id != block.None {
				see(id, s.CPU)
			}
		}
		if wrong != nil {
			return fmt.Errorf("the table of sequence %d of %d: %w", s.Number, s.Request, wrong)
		}
	}
	pairs := func(list []device.Pair, from, to bool) {
		for _, p := range list {
			see(p.Src, from)
			see(p.Dst, to)
		}
	}
	pairs(f.SwapOut, false, true)
	pairs(f.SwapIn, true, false)
	pairs(f.Copies, false, false)
	for _, list := range [][]int32{f.Hits, f.Cached} {
		for _, id := range list {
			see(id, false)
		}
	}
	for _, c := range f.Counts {
		see(c.Block, c.CPU)
	}
	return wrong
}

func (r *Recording) device(f *Frame, cpu bool) int {
	if cpu {
		return r.NumCPUBlocks
	}
	return f.Blocks
}

func deviceName(cpu bool) string {
	if cpu {
		return "CPU"
	}
	return "GPU"
}
