package sched

import "llmmemory/internal/scheduling/vllm/v1/kvcache"

// A batch is a step that is being scheduled, and then waits for its update.
type batch struct {
	seq       uint64 // of the step, from 1
	rows      []entry
	drafts    []int32
	from      []int // lengths of tables before the new blocks, row by row
	copies    []kvcache.Copy
	preempted []ID // as in the Step
	finished  []ID
	encode    []encodeEntry
	moved     []encodeEntry // by encoder.unscheduled
	dropped   []int
	evicted   []string // outputs of the encoder, as in the Step
	zero      []int32  // blocks, as in the Step
	touched   touched

	budget  int  // tokens left
	starved bool // a request was preempted, or waits for blocks
	waits   bool // a request waits for blocks that an update will free
	prefill bool // a running request that is not through its prompt is in it
}

// An entry is a request in a batch. There are as many as rows in a step, so it is
// kept small.
type entry struct {
	r        *request
	id       ID // r may be used again when the update comes
	kind     Kind
	admitted bool  // from the waiting queue
	prefill  bool  // the request was not through its prompt before
	samples  bool  // it has no more tokens to compute after this step
	computed int32 // tokens before this step
	tokens   int32
	draft    int32 // first one in batch.drafts
	drafts   int32
	from     int32 // first of its lengths in batch.from
}

func (b *batch) reset() {
	b.touched.reset()
	*b = batch{
		rows: b.rows[:0], drafts: b.drafts[:0], from: b.from[:0], copies: b.copies[:0],
		preempted: b.preempted[:0], finished: b.finished[:0],
		encode: b.encode[:0], moved: b.moved[:0], dropped: b.dropped[:0], evicted: b.evicted[:0], zero: b.zero[:0],
		touched: b.touched,
	}
}

// add returns a new row, to be filled in place: copying rows was most of a decode's time.
func (b *batch) add() *entry {
	n := len(b.rows)
	if n == cap(b.rows) {
		b.rows = append(b.rows, entry{})
		return &b.rows[n]
	}
	b.rows = b.rows[:n+1]
	e := &b.rows[n]
	e.admitted, e.prefill, e.samples = false, false, false
	e.draft, e.drafts = 0, 0
	return e
}

// A flight is the steps that are scheduled and not updated, the oldest first.
type flight struct {
	batches []*batch // number n is the one being scheduled, others after it are free
	n       int
}

func (f *flight) full() bool { return f.n == len(f.batches) }

// at returns step number i in flight; number n is the one being scheduled.
func (f *flight) at(i int) *batch { return f.batches[i] }

func (f *flight) pop() {
	oldest := f.batches[0]
	oldest.rows = oldest.rows[:0]
	copy(f.batches, f.batches[1:])
	f.batches[len(f.batches)-1] = oldest
	f.n--
}
