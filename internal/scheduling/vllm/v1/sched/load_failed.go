package sched

import (
	"fmt"
	"slices"

	"llmmemory/internal/scheduling/vllm/v1/pool"
)

// A FailedLoad lists what a failed load affects.
type FailedLoad struct {
	Affected []ID      // requests that have to compute tokens again
	Void     []VoidRow // rows in flight that read a block without its contents, or a block that a void row wrote
}

// A VoidRow is a row of a step in flight whose sampled tokens will be ignored.
type VoidRow struct {
	Step int // 0 is the oldest
	Row  int
}

// LoadFailed reports blocks that were not loaded, by a load for a waiting request or by a row of the oldest step in
// flight. It must be called before Received and before the Update of this step. An affected request computes its tokens
// again, from the first of its blocks that have failed, or from the first token (RULES.md §19). A block that no request
// uses only loses its keys.
func (x Transfers) LoadFailed(out *FailedLoad, blocks ...int32) error {
	s := x.s
	s.mu.Lock()
	defer s.unlock()
	f, err := s.findFailure(out, blocks)
	switch {
	case err != nil:
		return err
	case s.differs.loads:
		s.connector.fail(f)
	default:
		s.connector.failAsVLLM(f)
	}
	return nil
}

// Affected sets out as LoadFailed does, and changes nothing else.
func (x Transfers) Affected(out *FailedLoad, blocks ...int32) error {
	s := x.s
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.findFailure(out, blocks)
	return err
}

// A failure is what LoadFailed has to do.
type failure struct {
	missing  map[int32]bool // blocks that were not loaded
	bad      map[int32]bool // missing blocks that others may have read, and blocks computed from bad blocks
	order    []int32        // bad, in the order of discovery
	void     map[ID]bool    // whether the newest row in flight of a request is void
	taken    map[int32]bool // failed blocks that requests of setbacks compute again
	setbacks []setback
}

// A setback is a request that has to compute tokens again.
type setback struct {
	r              *request
	firstFailed    int  // index of its first failed block; -1: none
	firstToCompute int  // if r runs: index of its first failed block that no earlier setback computes again; -1: none
	stale          bool // r waits without blocks, and its rows in flight are void
}

// failed reports whether a block is missing or bad.
func (f *failure) failed(id int32) bool { return f.missing[id] || f.bad[id] }

func (f *failure) spoil(ids ...int32) {
	for _, id := range ids {
		if !f.bad[id] && id != pool.Null {
			f.bad[id] = true
			f.order = append(f.order, id)
		}
	}
}

func (s *Scheduler) findFailure(out *FailedLoad, blocks []int32) (*failure, error) {
	out.Affected, out.Void = out.Affected[:0], out.Void[:0]
	if !s.config.Connector.Consumer {
		return nil, fmt.Errorf("%w: the scheduler's connector is no consumer", ErrOrder)
	}
	c := s.connector
	f := &failure{missing: map[int32]bool{}, bad: map[int32]bool{}, void: map[ID]bool{}, taken: map[int32]bool{}}
	if err := c.noteMissing(f, blocks); err != nil {
		return nil, err
	}
	if s.differs.loads {
		c.findVoidRows(f, out)
		c.findSetbacks(f, c.notInFlight)
	} else {
		c.findVoidRowsAsVLLM(f, out)
		c.findSetbacks(f, c.notInFlightAsVLLM)
	}
	for i := range f.setbacks {
		out.Affected = append(out.Affected, f.setbacks[i].r.id)
	}
	return f, nil
}

// noteMissing adds the blocks to f.missing. It also adds them to f.bad, because other requests may have read them. It
// leaves a block out of f.bad if a waiting request has it alone and is still loading: no other request can have read
// this block.
func (c *connector) noteMissing(f *failure, blocks []int32) error {
	for i, id := range blocks {
		if id < 1 || int(id) >= c.s.cache.Pool.NumBlocks() {
			return fmt.Errorf("%w: blocks[%d] is %d: want 1 to %d", ErrRequest, i, id, c.s.cache.Pool.NumBlocks()-1)
		}
		f.missing[id] = true
	}
	exclusive := map[int32]bool{}
	for _, r := range c.s.allWaiting() {
		for g := range c.s.groups {
			for _, id := range r.kv.Table(g) {
				exclusive[id] = exclusive[id] || r.transfers.loading && c.s.cache.Pool.Count(id) == 1
			}
		}
	}
	for _, id := range blocks {
		if !exclusive[id] {
			f.spoil(id)
		}
	}
	return nil
}

// findVoidRows sets f.void and out.Void. A row in which a request is admitted is void if it reads a bad block. If it is
// void, all later rows of the request are void, too. Blocks that a void row writes are bad, and so are copies of bad
// blocks. The rows that write the blocks of a hit come before the row that reads them, so one pass over the steps in
// flight is enough.
func (c *connector) findVoidRows(f *failure, out *FailedLoad) {
	c.findVoidRunning(f, c.notInFlight)
	for k := range c.s.flight.n {
		b := c.s.flight.batches[k]
		for _, p := range b.copies {
			if f.bad[p.Src] {
				f.spoil(p.Dst)
			}
		}
		for i := range b.rows {
			e := &b.rows[i]
			if e.id == voided {
				continue
			}
			reads, writes := b.touched.row(i)
			if e.admitted {
				f.void[e.id] = f.anyBad(reads)
			}
			if f.void[e.id] {
				out.Void = append(out.Void, VoidRow{k, i})
				f.spoil(writes...)
			}
		}
	}
}

func (f *failure) anyBad(blocks []int32) bool {
	return slices.ContainsFunc(blocks, func(id int32) bool { return f.bad[id] })
}

// findVoidRunning sets f.void for running requests that have a row in the oldest step in flight and were admitted
// before this step. The value is true if a block has failed that contains computed tokens of the request. Tokens of
// rows in flight do not count.
func (c *connector) findVoidRunning(f *failure, notInFlight func(*request, *entry) int) {
	for _, r := range c.s.running {
		if e := c.oldestEntry(r); e != nil && !e.admitted {
			f.void[r.id] = c.firstFailed(r, f, notInFlight(r, e)) >= 0
		}
	}
}

func (c *connector) findSetbacks(f *failure, notInFlight func(*request, *entry) int) {
	for _, r := range c.s.allWaiting() {
		index := c.firstFailed(r, f, r.kv.NumComputedTokens)
		stale := c.s.differs.loads && r.stale > 0 && !r.dropStale && f.void[r.id]
		if index >= 0 || stale {
			f.setbacks = append(f.setbacks, setback{r: r, firstFailed: index, stale: stale})
		}
	}
	for _, r := range c.s.running {
		index := c.firstFailed(r, f, notInFlight(r, c.oldestEntry(r)))
		if index >= 0 || f.void[r.id] {
			f.setbacks = append(f.setbacks, setback{r: r, firstFailed: index, firstToCompute: c.take(r, f)})
		}
	}
}

// take adds the failed blocks of r to f.taken, because r will compute them again. A block that is in f.taken already is
// computed by an earlier request. take looks at the blocks that it has added, and returns the lowest index of such a
// block in r's tables. It returns -1 if it has added none.
func (c *connector) take(r *request, f *failure) int {
	first := -1
	for g := range c.s.groups {
		for i, id := range r.kv.Table(g) {
			if f.failed(id) && !f.taken[id] {
				f.taken[id] = true
				if first < 0 || i < first {
					first = i
				}
			}
		}
	}
	return first
}

// firstFailed looks for failed blocks among the blocks that contain the first tokens of r. The parameter tokens is the
// number of these tokens. firstFailed returns the lowest index of such a block in r's tables, or -1 if there is none.
func (c *connector) firstFailed(r *request, f *failure, tokens int) int {
	first := -1
	for g, size := range c.s.blockSizes {
		table := r.kv.Table(g)
		index := slices.IndexFunc(table[:min((tokens+size-1)/size, len(table))], f.failed)
		if index >= 0 && (first < 0 || index < first) {
			first = index
		}
	}
	return first
}

// oldestEntry returns the row of r in the oldest step in flight, or nil.
func (c *connector) oldestEntry(r *request) *entry {
	if c.s.flight.n > 0 {
		rows := c.s.flight.batches[0].rows
		if i := slices.IndexFunc(rows, func(e entry) bool { return e.r == r && e.id == r.id }); i >= 0 {
			return &rows[i]
		}
	}
	return nil
}

// notInFlight returns the number of computed tokens of r, not counting the tokens of rows in flight. The tokens of
// stale rows are not in NumComputedTokens, so they are not subtracted.
func (c *connector) notInFlight(r *request, _ *entry) int {
	return r.kv.NumComputedTokens - (r.inFlight - r.stale)
}

// fail makes each request of f.setbacks compute its lost tokens again, and removes the keys of all bad blocks.
func (c *connector) fail(f *failure) {
	for i := range f.setbacks {
		switch a := &f.setbacks[i]; {
		case a.r.status == running:
			c.failRunning(a)
		case a.stale:
			a.r.dropStale = true
		default:
			c.cutLoad(a.r, a.firstFailed)
		}
	}
	for _, id := range f.order {
		c.s.cache.Evict(id)
	}
}

// failRunning makes a running request compute its lost tokens again. If several requests share a failed block, the
// first of them goes back and computes the block; the others are preempted. In vLLM the others continue, because the
// first computes the block in the next step. If the first is not scheduled then, they read a block that was not
// written.
func (c *connector) failRunning(a *setback) {
	r := a.r
	if e := c.oldestEntry(r); e != nil {
		c.s.void(e)
	}
	first := -1
	if a.firstFailed >= 0 {
		first = c.cutAt(a.firstFailed)
	}
	if a.firstToCompute == a.firstFailed && first >= 0 && r.kv.Rewind(first) {
		c.s.restart(r)
		return
	}
	r.kv.EvictFrom(max(first, 0))
	c.s.removeRunning(r)
	c.s.preempt(r)
	r.dropStale = true
}

// cutLoad makes a waiting request compute tokens again: the tokens in the block with the given index and in all later
// blocks. If keepsLoad returns false, the request loses all its blocks, at once or when its load is over.
func (c *connector) cutLoad(r *request, index int) {
	computed := max(c.cutAt(index), 0)
	r.kv.NumComputedTokens = computed
	switch t := &r.transfers; {
	case t.loading:
		t.failed = true
	case c.keepsLoad(r, computed):
		r.kv.Rewind(computed)
		c.noteUnwritten(r, computed)
	default:
		r.kv.EvictFrom(computed)
		c.unload(r)
	}
}

// keepsLoad reports whether r can keep its blocks although only its first numLoaded tokens were loaded. It cannot if
// numLoaded is 0. r will write to the other blocks, so no other request may share them. (vLLM does not check this.)
func (c *connector) keepsLoad(r *request, numLoaded int) bool {
	return numLoaded > 0 && !(c.s.differs.loads && r.kv.SharedFrom(numLoaded))
}

// cutAt returns the number of tokens that a request can keep if the block with the given index was not loaded. These
// are the tokens in the blocks before it. cutAt returns -1 if the request can keep no tokens: if a group frees blocks
// early, because blocks of the earlier tokens may already be freed, or if the cache has several groups.
func (c *connector) cutAt(index int) int {
	if c.s.groups > 1 || c.s.cache.Config.Recycles() {
		return -1
	}
	return index * c.s.blockSizes[0]
}

const voided = ^ID(0)

func (s *Scheduler) void(e *entry) {
	s.retire(e.r, e)
	e.id = voided
}

// restart makes a running request go on from its computed tokens. The tokens that its rows in flight sample will be
// dropped.
func (s *Scheduler) restart(r *request) {
	r.drafts = r.drafts[:0]
	r.prefill = true
	r.placeholders, r.eligible = 0, 0
	r.stale, r.dropStale = r.inFlight, true
	s.encoder.wentBack(r)
}

// What follows is vLLM's behaviour after failed loads (Config.AsVLLM; vllm/v1/RULES.md §19). The main differences are:
//
//   - The failed blocks of running requests keep their keys.
//   - If the sampled tokens of a row are ignored, the blocks that the row has written are still treated as valid.
//   - If running requests share a failed block, the first one computes it again, and the others continue.

// findVoidRowsAsVLLM finds the rows that read missing blocks, and the later rows of the same requests. If a request was
// preempted after its row was scheduled, and still waits, vLLM does not treat this row as void.
func (c *connector) findVoidRowsAsVLLM(f *failure, out *FailedLoad) {
	c.findVoidRunning(f, c.notInFlightAsVLLM)
	for k := range c.s.flight.n {
		b := c.s.flight.batches[k]
		for i := range b.rows {
			e := &b.rows[i]
			if e.id == voided {
				continue
			}
			if reads, _ := b.touched.row(i); e.admitted {
				f.void[e.id] = f.anyBad(reads)
			}
			if f.void[e.id] && (e.r.id != e.id || e.r.status == running) {
				out.Void = append(out.Void, VoidRow{k, i})
			}
		}
	}
}

// notInFlightAsVLLM returns the number of computed tokens of r as vLLM counts them: r.kv.NumComputedTokens minus the
// tokens of e, but at least 0. e is the row of r in the oldest step in flight, or nil. If e is stale,
// r.kv.NumComputedTokens does not include the tokens of e, but vLLM subtracts them too. The result can then be too
// small.
func (c *connector) notInFlightAsVLLM(r *request, e *entry) int {
	if e == nil {
		return r.kv.NumComputedTokens
	}
	return max(r.kv.NumComputedTokens-int(e.tokens), 0)
}

func (c *connector) failAsVLLM(f *failure) {
	for i := range f.setbacks {
		if a := &f.setbacks[i]; a.r.status == running {
			c.failRunningAsVLLM(a)
		} else {
			c.cutLoad(a.r, a.firstFailed)
		}
	}
}

func (c *connector) failRunningAsVLLM(a *setback) {
	e := c.oldestEntry(a.r)
	computed := c.notInFlightAsVLLM(a.r, e)
	if a.firstToCompute >= 0 {
		computed = a.firstToCompute * c.s.blockSizes[0]
	}
	if e != nil {
		c.s.void(e)
	}
	a.r.kv.NumComputedTokens = computed
	c.s.restart(a.r)
}
