package view

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"llmmemory/internal/block"
	"llmmemory/internal/scheduling/device"
	"llmmemory/internal/scheduling/serve"
)

// Limits limit what a Recorder keeps.
type Limits struct {
	From   float64 // seconds; earlier frames are not kept
	Frames int     // maximum number of frames
}

// A Recorder records a scheduler. The caller must call Observe after each Step and Finished after each Finish, even
// for iterations before Limits.From, which get no frames. The Recorder copies the data that it keeps.
type Recorder struct {
	recording *Recording
	limits    Limits
	tabler    Tabler
	requests  map[int]*progress
	pending   []string      // sentences for the next frame
	copies    []device.Pair // made since the last frame
}

// progress is the state of a request that may have blocks.
type progress struct {
	tokens    int // tokens of each sequence that have a slot
	seqs      int // unfinished sequences
	numbers   int // all sequence numbers are below this; 0 if not known yet
	preempted bool
}

const maxSeqs = 1 << 10 // limits the search for the sequences of a request

// NewRecorder starts recording s, which must have no requests. The caller sets the numbers of blocks and the block
// size in r, and the Recorder appends frames to r. The error wraps ErrRecording if s does not expose its block tables
// or the pool is too large.
func NewRecorder(r *Recording, s serve.Scheduler, limits Limits) (*Recorder, error) {
	tables, err := tabler(s)
	if err != nil {
		return nil, err
	}
	if err := r.checkPool(); err != nil {
		return nil, err
	}
	rec := &Recorder{recording: r, limits: limits, tabler: tables, requests: map[int]*progress{}}
	if limits.From <= 0 {
		rec.pending = []string{"The pool is empty."}
		rec.keep(0, nil, nil, nil)
	}
	return rec, nil
}

// Full reports whether the recording has as many frames as Limits allow.
func (r *Recorder) Full() bool { return len(r.recording.Frames) >= r.limits.Frames }

// ErrFull is Observe's error when no more frames are kept.
var ErrFull = errors.New("the recording is full")

// Observe records what an iteration did.
func (r *Recorder) Observe(now float64, iter *serve.Iteration) error {
	if r.Full() {
		return ErrFull
	}
	wasPreempted := map[int]bool{}
	for _, p := range iter.Prefills {
		if q := r.requests[p.ID]; q != nil && q.preempted {
			wasPreempted[p.ID] = true
		}
	}
	r.follow(iter)
	if r.keeps(now) {
		r.keep(now, iter, nil, wasPreempted)
	}
	return nil
}

// Finished records that requests have left, and what is free now.
func (r *Recorder) Finished(now float64, ids ...int) error {
	for _, id := range ids {
		delete(r.requests, id)
	}
	if len(ids) > 0 && r.keeps(now) {
		r.keep(now, nil, ids, nil)
	}
	return nil
}

// Reforked records that a beam (child) became a copy of another beam (parent). copies are the blocks that were copied
// for this. The next frame shows it.
func (r *Recorder) Reforked(id, child, parent int, copies ...device.Pair) {
	r.pending = append(r.pending, fmt.Sprintf("Beam %d%s becomes a copy of beam %d%s.", id, letter(child), id, letter(parent)))
	r.copies = append(r.copies, copies...)
}

func (r *Recorder) keeps(now float64) bool {
	if now >= r.limits.From && !r.Full() {
		return true
	}
	r.pending, r.copies = nil, nil
	return false
}

func (r *Recorder) follow(iter *serve.Iteration) {
	for _, id := range iter.Ignored {
		delete(r.requests, id)
	}
	for _, p := range iter.Preempted {
		r.request(p.ID).preempted = !p.Swapped
	}
	for _, p := range iter.Prefills {
		q := r.request(p.ID)
		q.tokens, q.seqs, q.preempted = p.Start+p.Tokens, p.Seqs, false
	}
	for _, d := range iter.Decodes {
		q := r.request(d.ID)
		q.tokens, q.seqs = d.Context, d.Seqs
	}
}

func (r *Recorder) request(id int) *progress {
	if r.requests[id] == nil {
		r.requests[id] = &progress{seqs: 1}
	}
	return r.requests[id]
}

// keep adds a frame with the current state. iter is the iteration that led to this state, or nil if no iteration did.
// wasPreempted has the requests that iter computes again, because they had lost their blocks before.
func (r *Recorder) keep(now float64, iter *serve.Iteration, finished []int, wasPreempted map[int]bool) {
	f, before := Frame{Now: now, Blocks: r.recording.NumGPUBlocks, Copies: r.copies}, &Frame{}
	n := len(r.recording.Frames)
	if n > 0 {
		before = &r.recording.Frames[n-1]
	}
	f.Waiting, f.Running, f.Swapped = r.tabler.Queues()
	f.Sequences = r.sequences(before, f.Swapped)
	if iter != nil {
		f.SwapOut, f.SwapIn = slices.Clone(iter.SwapOut), slices.Clone(iter.SwapIn)
		f.Copies = append(f.Copies, iter.Copies...)
		f.Hits = r.hits(iter)
	}
	if c, ok := r.tabler.(cacher); ok {
		f.Cached = slices.Clone(c.Cached())
	}
	if c, ok := r.tabler.(counter); ok {
		gpu, cpu := c.Counts()
		f.Counts = append(unexplained(gpu, f.Sequences, false), unexplained(cpu, f.Sequences, true)...)
	}
	w := words{before: before, after: &f, block: r.recording.BlockSize, wasPreempted: wasPreempted, first: n == 0}
	f.Said = append(r.pending, w.sentences(iter, finished)...)
	r.pending, r.copies = nil, nil
	r.recording.Frames = append(r.recording.Frames, f)
}

// sequences returns the sequences that have blocks, sorted by request and number. If the table of a sequence is the
// same as in the frame before, the two frames share one slice.
func (r *Recorder) sequences(before *Frame, swapped []int) []Sequence {
	var all []Sequence
	for _, id := range slices.Sorted(maps.Keys(r.requests)) {
		q := r.requests[id]
		for number, table := range r.tables(id, q) {
			s := Sequence{Request: id, Number: number, CPU: slices.Contains(swapped, id), Tokens: q.tokens}
			if old := before.sequence(id, number); old != nil && slices.Equal(old.Table, table) {
				s.Table = old.Table
			} else {
				s.Table = slices.Clone(table)
			}
			all = append(all, s)
		}
	}
	return all
}

// tables yields the block tables of a request, with the number of each sequence. It yields nothing if the request has
// no blocks. It asks the scheduler for the table of each possible number, from 0 on, until it has found a table for
// every unfinished sequence. It then stores the next number in q.numbers, and later calls ask only for lower numbers.
func (r *Recorder) tables(id int, q *progress) func(func(int, []int32) bool) {
	return func(yield func(int, []int32) bool) {
		end, found := maxSeqs, 0
		if q.numbers > 0 {
			end = q.numbers
		}
		for number := 0; number < end && (q.numbers > 0 || found < q.seqs); number++ {
			table := r.tabler.Table(id, number)
			if len(table) == 0 {
				if number == 0 && q.tokens == 0 {
					return // the request waits
				}
				continue
			}
			found++
			if found == q.seqs && q.numbers == 0 {
				q.numbers = number + 1
			}
			if !yield(number, table) {
				return
			}
		}
	}
}

func (r *Recorder) hits(iter *serve.Iteration) []int32 {
	var ids []int32
	size := r.recording.BlockSize
	for _, p := range iter.Prefills {
		table := r.tabler.Table(p.ID, 0)
		end := min(len(table), (p.Start+p.Cached+size-1)/size)
		ids = append(ids, table[min(end, p.Start/size):end]...)
	}
	return ids
}

// unexplained returns the reference counts of blocks. It leaves out a count if it equals the number of table entries
// with the block.
func unexplained(counts []int32, sequences []Sequence, cpu bool) []Count {
	named := make([]int32, len(counts))
	for _, s := range sequences {
		for _, id := range s.Table {
			if s.CPU == cpu && id != block.None && int(id) < len(named) {
				named[id]++
			}
		}
	}
	var all []Count
	for id, n := range counts {
		if n != named[id] {
			all = append(all, Count{cpu, int32(id), n})
		}
	}
	return all
}
