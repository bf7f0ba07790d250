package sched

import "llmmemory/internal/scheduling/vllm/v1/kvcache"

// A batch is a step that is being scheduled or in flight.
type batch struct {
	seq       uint64 // number of the step, from 1
	rows      []entry
	drafts    []int32
	tableLens []int // lengths of tables before this step, row by row and group by group
	copies    []kvcache.Copy
	preempted []ID // as in the Step
	finished  []ID
	encode    []encodeEntry
	moved     []encodeEntry // by encoder.unscheduled
	dropped   []int
	evicted   []string // outputs of the encoder, as in the Step
	zero      []int32  // blocks, as in the Step
	touched   touched

	budget       int  // tokens left
	starved      bool // a request was preempted, or waits for blocks
	awaitsUpdate bool // a request waits for blocks that an update will free
	prefill      bool // a running request computes its prompt
}

// An entry is a row of a batch.
type entry struct {
	r        *request
	id       ID // ID of r when the row was scheduled; differs from r.id if r has ended since, or if the row is void
	kind     Kind
	admitted bool  // r waited before
	prefill  bool  // r.prefill before the step, or admitted
	samples  bool  // r has no more tokens to compute after the step
	computed int32 // tokens before this step
	tokens   int32
	draft    int32 // first one in batch.drafts
	drafts   int32
	firstLen int32 // index of its first length in batch.tableLens
}

func (b *batch) reset() {
	b.touched.reset()
	*b = batch{
		rows: b.rows[:0], drafts: b.drafts[:0], tableLens: b.tableLens[:0], copies: b.copies[:0],
		preempted: b.preempted[:0], finished: b.finished[:0],
		encode: b.encode[:0], moved: b.moved[:0], dropped: b.dropped[:0], evicted: b.evicted[:0], zero: b.zero[:0],
		touched: b.touched,
	}
}

// add appends a row and returns it, so that the caller sets the fields of the row in place. Appending a complete row
// would copy it, once for each decoding request in each step.
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

// A flight has the steps in flight, the oldest first.
type flight struct {
	batches []*batch // the first n are in flight; number n is being scheduled; the others are unused
	n       int
}

func (f *flight) pop() {
	oldest := f.batches[0]
	oldest.rows = oldest.rows[:0]
	copy(f.batches, f.batches[1:])
	f.batches[len(f.batches)-1] = oldest
	f.n--
}
