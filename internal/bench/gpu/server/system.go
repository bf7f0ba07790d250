package main

import (
	"fmt"
	"slices"
	"time"

	"llmmemory/internal/scheduling/paper"
	"llmmemory/internal/scheduling/serve"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
)

// A system runs a paper.Scheduler with the model on the GPU. Each token of an answer is the most probable one.
// Therefore all answers to the same request have the same tokens.
type system struct {
	scheduler *paper.Scheduler
	copies    bool // answers to a prompt do not share its blocks
	runner    engine.DeviceRunner
	maxLogits int // of a call of the runner
	requests  []request
	answers   [][][]int32 // of each request
	host      map[int32][]byte
	blockSize int // bytes

	iteration serve.Iteration
	batch     model.Batch
	largest   []int32
	progress
}

// newSystem adds the requests, each with n answers, to a scheduler.
func newSystem(s *paper.Scheduler, copies bool, r engine.DeviceRunner, c *engine.RunnerConfig, requests []request, n int) (*system, error) {
	y := &system{scheduler: s, copies: copies, runner: r, maxLogits: c.MaxLogits(), requests: requests, host: map[int32][]byte{}, blockSize: c.Store.BlockBytes()}
	for i, q := range requests {
		y.answers = append(y.answers, make([][]int32, n))
		if err := s.Add(serve.Request{ID: i, Prompt: len(q.prompt), Output: q.output, Seqs: n}); err != nil {
			return nil, err
		}
	}
	return y, nil
}

func (y *system) run(deadline time.Time) error {
	y.begin(len(y.requests))
	for left := len(y.requests); left > 0 && (deadline.IsZero() || time.Now().Before(deadline)); {
		it := &y.iteration
		if err := y.scheduler.Step(it); err != nil {
			return err
		}
		if it.Idle() || len(it.Ignored) > 0 {
			return fmt.Errorf("%d requests are not answered, and requests %v never can be", left, it.Ignored)
		}
		y.note(y.scheduler.Usage())
		if err := y.move(); err != nil {
			return err
		}
		if it.Empty() {
			continue
		}
		finished, err := y.step()
		if err != nil {
			return err
		}
		if _, err := y.scheduler.Finish(nil, finished...); err != nil {
			return err
		}
		left -= len(finished)
	}
	return nil
}

func (y *system) move() error {
	it := &y.iteration
	for _, p := range it.SwapOut {
		y.host[p.Dst] = make([]byte, y.blockSize)
		y.runner.ReadBlocks([]int32{p.Src}, [][]byte{y.host[p.Dst]})
	}
	for _, p := range it.SwapIn {
		y.runner.WriteBlocks([]int32{p.Dst}, [][]byte{y.host[p.Src]})
	}
	var pairs []kvstore.Pair
	for _, p := range it.Copies {
		pairs = append(pairs, kvstore.Pair{Src: p.Src, Dst: p.Dst})
	}
	return y.runner.CopyBlocks(pairs)
}

// fill makes the batch of an iteration.
func (y *system) fill() {
	it, b := &y.iteration, &y.batch
	*b = model.Batch{Tokens: b.Tokens[:0], Positions: b.Positions[:0], QueryStart: b.QueryStart[:0], SeqLens: b.SeqLens[:0], Logits: b.Logits[:0],
		Blocks: model.Blocks{Slots: b.Slots[:0], BlockTables: b.BlockTables[:0]}}
	stride := 0
	for _, p := range it.Prefills {
		stride = max(stride, blocksFor(p.Tokens))
	}
	for _, d := range it.Decodes {
		stride = max(stride, blocksFor(d.Context))
	}
	for _, p := range it.Prefills {
		tokens := slices.Concat(y.requests[p.ID].prompt, y.answers[p.ID][0])
		addSequence(b, tokens, 0, y.table(p.ID, 0, len(tokens)), stride)
	}
	for _, d := range it.Decodes {
		for s, answer := range y.answers[d.ID] {
			addSequence(b, answer[len(answer)-1:], d.Context-1, y.table(d.ID, s, d.Context), stride)
		}
	}
}

// step runs the model for the scheduler's iteration, and returns the requests that are then answered.
func (y *system) step() (finished []int, err error) {
	y.fill()
	if y.largest, err = compute(y.runner, y.maxLogits, &y.batch, y.largest[:0]); err != nil {
		return nil, err
	}
	if err := y.copyPrompts(); err != nil {
		return nil, err
	}
	row, tokens, begun := 0, 0, y.begun
	add := func(id, sequence int) {
		y.answers[id][sequence] = append(y.answers[id][sequence], y.largest[row])
		tokens++
		if len(y.answers[id][sequence]) == y.requests[id].output && sequence == len(y.answers[id])-1 {
			finished = append(finished, id)
		}
	}
	for _, p := range y.iteration.Prefills { // its token is the next one of all answers
		if len(y.answers[p.ID][0]) == 0 {
			y.begun++
		}
		for s := range p.Seqs {
			add(p.ID, s)
		}
		row++
	}
	for _, d := range y.iteration.Decodes {
		for s := range d.Seqs {
			add(d.ID, s)
			row++
		}
	}
	y.stepped(tokens, len(y.batch.SeqLens), begun)
	return finished, nil
}

// copyPrompts copies the blocks of prompts from the first answer to the others, if answers do not share blocks.
func (y *system) copyPrompts() error {
	var pairs []kvstore.Pair
	for _, p := range y.iteration.Prefills {
		for s := 1; y.copies && s < p.Seqs; s++ {
			src, dst := y.table(p.ID, 0, p.Tokens), y.table(p.ID, s, p.Tokens)
			for i := range src {
				pairs = append(pairs, kvstore.Pair{Src: src[i], Dst: dst[i]})
			}
		}
	}
	return y.runner.CopyBlocks(pairs)
}

func blocksFor(tokens int) int { return (tokens + blockSize - 1) / blockSize }

func (y *system) table(id, sequence, tokens int) []int32 {
	return y.scheduler.Table(id, sequence)[:blocksFor(tokens)]
}
