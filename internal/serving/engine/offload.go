package engine

import (
	"slices"
	"sync"
	"time"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/scheduling/vllm/v1/pool"
	"llmmemory/internal/scheduling/vllm/v1/sched"
	"llmmemory/internal/serving/kvoffload"
)

// An offload moves blocks between the workers and tiers outside the process. A nil offload does nothing.
//
// When a step has succeeded, the engine offers its full blocks to a tier, unless it has offered them before, and copies
// those that the offloader accepts. It does so before it reports the step to the scheduler, because the request still
// has the blocks at that time. There are two exceptions: the request may have been cancelled, or the next step, which
// is scheduled already, may have preempted it. The request has then lost its blocks, and they are not copied.
//
// The engine searches the tiers for the prompt of a request before it submits the request to the scheduler. The
// scheduler decides whether blocks are loaded (scheduling/vllm/v1/RULES.md §19). The scheduler keeps the request's
// blocks until the engine calls Received. Until that call, the offloader can write loaded blocks at any time. Once the
// offloader has given up a load, it writes no more blocks of that load.
type offload struct {
	*kvoffload.Offloader
	engine *Engine

	// Only the loop uses these fields.
	full []fullBlock                 // blocks to store
	read func(id int32, data []byte) // copies a block from the workers

	// The engine's lock protects these fields.
	coming   map[blockhash.Hash]*claim // blocks that are being loaded or soon will be
	loads    int                       // loads in progress
	idle     bool                      // the last step had no rows, and nothing has happened since
	perToken time.Duration             // time to compute a token of a prompt; 0 if unknown
}

// A fullBlock is a block to store.
type fullBlock struct {
	hash blockhash.Hash
	id   int32
}

// A tierState is the state of a sequence that concerns tiers.
type tierState struct {
	content pool.Content // hashes of its full blocks
	offered int          // leading blocks that were offered to the tiers
	claim   *claim       // may be nil
	loaded  int          // tokens of the prompt
}

// A claim marks blocks that a request loads or is about to load. Other requests that need these blocks wait for the end
// of the claim, and then find the blocks in the prefix cache.
type claim struct {
	blocks   []blockhash.Hash
	ended    chan struct{}
	deadline time.Time // when other requests stop waiting for the end of the claim
}

func (e *Engine) newOffload(blockBytes int) *offload {
	if e.config.Offload == nil {
		return nil
	}
	c := *e.config.Offload
	c.BlockBytes = blockBytes
	return &offload{
		Offloader: kvoffload.New(c), engine: e, coming: map[blockhash.Hash]*claim{},
		read: func(id int32, data []byte) { e.workers.move(readBlocks, []int32{id}, [][]byte{data}) },
	}
}

func (o *offload) close() error {
	if o == nil {
		return nil
	}
	return o.Close()
}

// OffloadStats are statistics of the tiers.
type OffloadStats struct {
	kvoffload.Stats
	ComputeRate float64 // tokens of prompts computed in a second recently; 0 if unknown
}

// OffloadStats returns the statistics of the tiers. ok is false if there are no tiers.
func (e *Engine) OffloadStats() (stats OffloadStats, ok bool) {
	if e.offload == nil {
		return stats, false
	}
	stats.Stats = e.offload.Stats()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.offload.perToken > 0 {
		stats.ComputeRate = 1 / e.offload.perToken.Seconds()
	}
	return stats, true
}

// hashes returns the hashes of the full blocks of a sequence.
func (o *offload) hashes(q *sequence) []blockhash.Hash {
	c := &q.tiers.content
	c.Tokens, c.Extras = q.tokens, o.engine.extras(q.stream.request)
	if size := o.engine.config.BlockSize; len(c.Tokens) >= (len(c.Hashes)+1)*size {
		c.Extend(o.engine.config.Hash, size)
	}
	return c.Hashes
}

// find looks for the blocks of q's prompt in the prefix cache and the tiers, and claims the blocks to load for q. The
// Match has the number of tokens at the beginning of the prompt that are cached or can be loaded. If no block can be
// loaded, find returns the zero Match. The last token of the prompt is never loaded, because it must be computed. If
// another request loads some of the blocks, find first waits for that load, but not longer than patience.
func (o *offload) find(q *sequence) sched.Match {
	if o == nil || !o.Loads() || q.stream.request.needsAllStates() {
		return sched.Match{}
	}
	blocks := o.hashes(q)[:(q.prompt-1)/o.engine.config.BlockSize]
	for {
		have, waitFor, compute := o.look(blocks)
		if waitFor != nil {
			select {
			case <-waitFor.ended:
				continue
			case <-time.After(time.Until(waitFor.deadline)): // the other request may wait for its turn
				return sched.Match{}
			}
		}
		n := have + o.findIn(blocks[have:], compute)
		if n == have {
			return sched.Match{}
		}
		if o.claim(q, blocks[have:n]) {
			return sched.Match{NumTokens: n * o.engine.config.BlockSize, Async: true}
		}
	}
}

// patience is the longest time that a request waits for the blocks of another request's claim. The time begins when the
// other request makes the claim.
const patience = 2 * time.Second

// look returns the number of leading blocks that are in the prefix cache, and the time for computing the blocks after
// them. If another request has a claim on one of these later blocks, look also returns that claim. If the model has
// several groups of layers, look does not search the prefix cache, and have is always 0.
func (o *offload) look(blocks []blockhash.Hash) (have int, waitFor *claim, compute time.Duration) {
	e := o.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.config.groups) < 2 {
		e.sched.Monitor.Inspect(func(c *kvcache.Cache) { have = kvcache.CachedPrefix(c, blocks) })
	}
	for i := len(blocks) - 1; i >= have && waitFor == nil; i-- {
		waitFor = o.coming[blocks[i]]
	}
	return have, waitFor, o.perToken * time.Duration((len(blocks)-have)*e.config.BlockSize)
}

// claim claims blocks for q. It returns false if another request has a claim on one of them.
func (o *offload) claim(q *sequence, blocks []blockhash.Hash) bool {
	o.engine.mu.Lock()
	defer o.engine.mu.Unlock()
	if slices.ContainsFunc(blocks, func(b blockhash.Hash) bool { return o.coming[b] != nil }) {
		return false
	}
	c := &claim{blocks, make(chan struct{}), time.Now().Add(patience)}
	for _, b := range blocks {
		o.coming[b] = c
	}
	q.tiers.claim = c
	return true
}

// release ends the claim of q.
func (o *offload) release(q *sequence) {
	if o == nil || q.tiers.claim == nil {
		return
	}
	for _, b := range q.tiers.claim.blocks {
		delete(o.coming, b)
	}
	close(q.tiers.claim.ended)
	q.tiers.claim = nil
}

// start starts the loads of a step.
func (o *offload) start(plan *sched.Step) {
	if o == nil {
		return
	}
	o.idle = len(plan.Rows) == 0
	for _, l := range plan.Loads {
		o.load(l)
	}
}

// wake records that the next step may have rows again.
func (o *offload) wake() {
	if o != nil {
		o.idle = false
	}
}

// nothingToDo reports whether all requests wait for loads.
func (o *offload) nothingToDo() bool { return o != nil && o.idle && o.loads > 0 }

// load loads blocks from a tier into the blocks of a request's table. The scheduler keeps the blocks of the table
// until Received, even if the request is aborted meanwhile.
func (o *offload) load(l sched.Loading) {
	e := o.engine
	q := e.live[l.ID]
	ids, keys := o.toLoad(q, l)
	o.loads++
	var writes sync.WaitGroup
	o.Load(keys, o.perToken*time.Duration(l.NumExternalTokens),
		func(i int, data [][]byte) {
			write := func() { e.workers.move(writeBlocks, ids[i:][:len(data)], data) }
			if e.config.Remote == nil {
				write()
				return
			}
			writes.Go(write) // write waits for the end of a step; the tier reads the next blocks meanwhile
		},
		func(n int) {
			writes.Wait()
			tokens := n * e.config.BlockSize
			if len(e.config.groups) > 1 { // all or nothing
				tokens = l.NumExternalTokens * (n / len(ids))
			}
			o.end(l.ID, q, tokens, ids[n:])
		})
}

// end reports the end of a load to the scheduler. The parameter tokens is the number of tokens that were loaded. The
// blocks of the request's table that were not loaded are in the parameter missing.
func (o *offload) end(id sched.ID, q *sequence, tokens int, missing []int32) {
	e := o.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	q.tiers.loaded = tokens
	if len(missing) > 0 {
		var failed sched.FailedLoad
		must(e.sched.Transfers.LoadFailed(&failed, missing...))
	}
	must(e.sched.Transfers.Received(id))
	o.loads--
	o.wake()
	o.release(q)
	e.changed.Signal()
}

// store offers to the tiers the blocks that step s has filled. The parameter next is the step that was scheduled
// before s ended, or nil.
//
// The loop calls store without the engine's lock. If a request is cancelled while store copies its blocks, the blocks
// become free. No other request gets these blocks before store returns, because only the loop schedules. With a
// Remote, the loop must not call store while a step is in flight (see workers.move).
func (o *offload) store(s, next *step) {
	if o == nil || !o.Stores() {
		return
	}
	o.findFull(s, next)
	for _, b := range o.full {
		o.Offer(b.hash, func(dst []byte) { o.read(b.id, dst) })
	}
	o.full = o.full[:0]
}

// findFull collects the blocks that were filled by step s or before, and were not offered to the tiers yet.
func (o *offload) findFull(s, next *step) {
	e := o.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range s.rows {
		r := &s.rows[i]
		q := r.q
		if q.id == 0 || next != nil && slices.Contains(next.plan.Preempted, q.id) {
			continue
		}
		computed := int(s.input.batch.SeqLens[i]) - len(r.drafts)
		o.addFull(q, computed/e.config.BlockSize)
	}
}

// measure updates perToken from the time that a step took.
func (o *offload) measure(r *StepReport) {
	const fewTokens = 32 // a step of fewer tokens takes as long as a step of one token
	if o == nil || r.Tokens < fewTokens || r.Elapsed <= 0 {
		return
	}
	now := r.Elapsed / time.Duration(r.Tokens)
	if o.perToken == 0 {
		o.perToken = now
	}
	o.perToken += (now - o.perToken) / 4
}
