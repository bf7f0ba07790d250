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

// An offload moves blocks between the workers' stores and tiers outside the process. A nil one does nothing.
//
// A full block is copied when its step has succeeded, before the scheduler learns of that: its request
// still has it then, unless the step scheduled meanwhile has preempted it. A request that comes is looked up
// outside before the scheduler gets it. The scheduler decides whether it loads (scheduling/vllm/v1/RULES.md §19), and
// keeps its blocks for it until Received, so what comes is written to them at any time. What comes
// after the load was given up is written nowhere.
type offload struct {
	*kvoffload.Offloader
	engine *Engine

	// The loop's, which alone uses them:
	full []fullBlock                 // to be copied
	read func(id int32, data []byte) // copies a block of the workers' stores

	// Under the engine's lock:
	coming   map[blockhash.Hash]*claim // blocks that are being loaded, or are about to be
	loads    int                       // under way
	idle     bool                      // the last step had no rows, and nothing has happened since
	perToken time.Duration             // computing a token of a prompt; 0: not known
}

// A fullBlock is a block that is to be stored.
type fullBlock struct {
	hash blockhash.Hash
	id   int32
}

// outside is what a sequence has to do with tiers.
type outside struct {
	content pool.Content // hashes of its full blocks
	offered int          // blocks that were stored, or seen to be
	claim   *claim       // nil: none
	loaded  int          // tokens of the prompt
}

// A claim is on blocks that a request loads or is about to load. Others wait for it, and find the blocks
// in the cache.
type claim struct {
	blocks []blockhash.Hash
	over   chan struct{}
	until  time.Time // when others no longer wait for it
}

func (e *Engine) newOffload(blockBytes int) *offload {
	if e.config.Offload == nil {
		return nil
	}
	c := *e.config.Offload
	c.BlockBytes = blockBytes
	return &offload{
		Offloader: kvoffload.New(c), engine: e, coming: map[blockhash.Hash]*claim{},
		read: func(id int32, data []byte) { e.workers.move(messageRead, []int32{id}, [][]byte{data}) },
	}
}

func (o *offload) close() error {
	if o == nil {
		return nil
	}
	return o.Close()
}

// OffloadStats are what was stored and loaded, and how many tokens of a prompt are computed in a second, lately;
// 0: not known.
type OffloadStats struct {
	kvoffload.Stats
	ComputeRate float64
}

// OffloadStats returns them; ok is false without tiers.
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

// hashes returns the hashes of the full blocks of the tokens known so far.
func (o *offload) hashes(q *sequence) []blockhash.Hash {
	c := &q.outside.content
	c.Tokens, c.Extras.Salt = q.tokens, q.stream.request.CacheSalt
	if size := o.engine.config.BlockSize; len(c.Tokens) >= (len(c.Hashes)+1)*size {
		c.Extend(o.engine.config.Hash, size)
	}
	return c.Hashes
}

// find returns the prefix of a prompt that can be loaded. It waits while another request loads the same blocks. The last
// token is not loaded: it is computed in any case.
func (o *offload) find(q *sequence) sched.Match {
	if o == nil || !o.Loads() || q.params.PromptLogprobs >= 0 {
		return sched.Match{}
	}
	blocks := o.hashes(q)[:(q.prompt-1)/o.engine.config.BlockSize]
	for {
		have, waitFor, compute := o.look(blocks)
		if waitFor != nil {
			select {
			case <-waitFor.over:
				continue
			case <-time.After(time.Until(waitFor.until)): // the other one waits for its turn, perhaps
				return sched.Match{}
			}
		}
		n := have + o.Find(blocks[have:], compute)
		if n == have {
			return sched.Match{}
		}
		if o.claim(q, blocks[have:n]) {
			return sched.Match{NumTokens: n * o.engine.config.BlockSize, Async: true}
		}
	}
}

// patience is how long a claim makes others wait.
const patience = 2 * time.Second

// look returns how many of the blocks are in the cache, from the first one on, a claim on one of the others,
// and how long computing the others takes.
func (o *offload) look(blocks []blockhash.Hash) (have int, waitFor *claim, compute time.Duration) {
	e := o.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sched.Monitor.Inspect(func(c *kvcache.Cache) { have = kvcache.CachedPrefix(c, blocks) })
	for i := len(blocks) - 1; i >= have && waitFor == nil; i-- {
		waitFor = o.coming[blocks[i]]
	}
	return have, waitFor, o.perToken * time.Duration((len(blocks)-have)*e.config.BlockSize)
}

// claim claims blocks for q, and reports false if another request was faster.
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
	q.outside.claim = c
	return true
}

// release ends the claim of q, which needs it no more.
func (o *offload) release(q *sequence) {
	if o == nil || q.outside.claim == nil {
		return
	}
	for _, b := range q.outside.claim.blocks {
		delete(o.coming, b)
	}
	close(q.outside.claim.over)
	q.outside.claim = nil
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

// wake notes that something has happened, so that the next step may have rows.
func (o *offload) wake() {
	if o != nil {
		o.idle = false
	}
}

// nothingToDo reports whether everything that lives waits for loads.
func (o *offload) nothingToDo() bool { return o != nil && o.idle && o.loads > 0 }

// load loads blocks that are already in a request's table. They are kept until Received even if the
// request is aborted meanwhile.
func (o *offload) load(l sched.Loading) {
	e, size := o.engine, o.engine.config.BlockSize
	q := e.live[l.ID]
	table, err := e.sched.Monitor.Table(nil, l.ID, 0)
	if err != nil {
		panic("engine: " + err.Error()) // only this package's own mistakes lead there
	}
	from, to := l.NumComputedTokens/size, (l.NumComputedTokens+l.NumExternalTokens)/size
	table = table[from:to]
	blocks := slices.Clone(o.hashes(q)[from:to])
	for len(table) > 0 && table[0] == pool.Null { // before a window
		table, blocks = table[1:], blocks[1:]
	}
	o.loads++
	var writes sync.WaitGroup
	o.Load(blocks, o.perToken*time.Duration(l.NumExternalTokens),
		func(i int, data [][]byte) {
			write := func() { e.workers.move(messageWrite, table[i:][:len(data)], data) }
			if e.config.Remote == nil {
				write()
				return
			}
			writes.Go(write) // when a step has ended; the tier is read on meanwhile
		},
		func(n int) {
			writes.Wait()
			o.end(l.ID, q, n*size, table[n:])
		})
}

// end ends a load, of which some tokens came and some blocks did not.
func (o *offload) end(id sched.ID, q *sequence, tokens int, missing []int32) {
	e := o.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	q.outside.loaded = tokens
	if len(missing) > 0 {
		var failed sched.FailedLoad
		if err := e.sched.Transfers.LoadFailed(&failed, missing...); err != nil {
			panic("engine: " + err.Error()) // only this package's own mistakes lead there
		}
	}
	if err := e.sched.Transfers.Received(id); err != nil {
		panic("engine: " + err.Error()) // only this package's own mistakes lead there
	}
	o.loads--
	o.wake()
	o.release(q)
	e.changed.Signal()
}

// store offers the blocks that are full after s. next is the step that was scheduled meanwhile, or nil. The loop calls
// it, without the engine's lock: a request that is cancelled while its blocks are copied gives them back, but only the
// loop schedules, so no other request gets them before. If there are other processes, no step may be in flight (see
// workers.move).
func (o *offload) store(s, next *step) {
	if o == nil || !o.Stores() {
		return
	}
	o.findFull(s, next)
	for _, b := range o.full {
		o.Offer(b.hash, func(to []byte) { o.read(b.id, to) })
	}
	o.full = o.full[:0]
}

// findFull lists the blocks that are full after s and were not listed before.
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
		computed := int(s.message.batch.SeqLens[i]) - len(r.drafts)
		hashes := o.hashes(q)
		table := q.tables[0]
		full := min(computed/e.config.BlockSize, len(hashes), len(table))
		for ; q.outside.offered < full; q.outside.offered++ {
			if id := table[q.outside.offered]; id != pool.Null {
				o.full = append(o.full, fullBlock{hashes[q.outside.offered], id})
			}
		}
	}
}

// measure notes how long computing takes.
func (o *offload) measure(r *StepReport) {
	const fewTokens = 32 // of which a step takes as long as of one
	if o == nil || r.Tokens < fewTokens || r.Elapsed <= 0 {
		return
	}
	now := r.Elapsed / time.Duration(r.Tokens)
	if o.perToken == 0 {
		o.perToken = now
	}
	o.perToken += (now - o.perToken) / 4
}
