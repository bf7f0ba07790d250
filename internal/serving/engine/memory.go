package engine

import (
	"llmmemory/internal/scheduling/device"
	"llmmemory/internal/scheduling/serve"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/scheduling/vllm/v1/sched"
)

// A MemoryObserver observes the blocks.
type MemoryObserver interface {
	// Active reports whether the observer wants changes now. The engine calls Active often, and collects no changes
	// while it returns false.
	Active() bool

	// Memory receives the changes since the last call for which it returned true. If it returns false, the next call
	// has the same changes and later ones. The engine calls Memory at the end of a step and when the engine becomes
	// idle, with the engine's lock held. Memory must return soon, and must not use the change after it returns.
	Memory(*MemoryChange) bool
}

// A MemoryChange describes one or more steps. Requests are numbered from 1 in the order of submission.
type MemoryChange struct {
	serve.Iteration       // the scheduled work; chunks of a prompt are separate entries
	Left            []int // requests that have ended
	Hits            []int32
	Steps           int
	Idle            bool // the engine has no work now

	engine *Engine
	begun  map[int]int // indices in Decodes by request
}

// A MemoryState describes which requests have which blocks.
type MemoryState struct {
	Answers          []AnswerBlocks // those with blocks
	Waiting, Running []int          // requests
	Cached           []int32        // free blocks that are in the prefix cache
}

// AnswerBlocks are the blocks of one answer in one group of layers. Index is
//
//	a*n + g
//
// where a is the index of the answer among the answers to the request, n is the number of groups, and g is the index of
// the group.
type AnswerBlocks struct {
	Request, Index int
	Tokens         int     // computed tokens
	Table          []int32 // the null block, 0, replaces blocks that have left a sliding window, and states that are not kept
}

// State returns the current state.
func (c *MemoryChange) State() *MemoryState { return c.engine.memoryState() }

// WatchMemory sets the observer of the blocks.
func (e *Engine) WatchMemory(o MemoryObserver) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.memory = o
	e.change = MemoryChange{engine: e, begun: map[int]int{}}
}

// MemoryState returns the current state.
func (e *Engine) MemoryState() *MemoryState {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.memoryState()
}

func (e *Engine) memoryState() *MemoryState {
	m := &MemoryState{}
	queue := func(ids []sched.ID) (requests []int) {
		last := 0
		for _, id := range ids {
			if q := e.live[id]; q != nil && q.stream.number != last {
				last = q.stream.number
				requests = append(requests, last)
			}
		}
		return requests
	}
	running, waiting := e.sched.Monitor.Running(nil), e.sched.Monitor.Waiting(nil)
	m.Running, m.Waiting = queue(running), queue(waiting)
	for _, id := range append(running, waiting...) {
		q := e.live[id]
		if q == nil {
			continue
		}
		computed, _, _ := e.sched.Monitor.NumComputedTokens(id)
		for g := range q.tables {
			table, err := e.sched.Monitor.Table(nil, id, g)
			if err != nil || len(table) == 0 {
				continue
			}
			m.Answers = append(m.Answers, AnswerBlocks{q.stream.number, q.index*len(q.tables) + g, computed, table})
		}
	}
	e.sched.Monitor.Inspect(func(c *kvcache.Cache) {
		for id := range int32(c.Pool.NumBlocks()) {
			if _, _, cached := c.Pool.Primary(id); cached && c.Pool.Count(id) == 0 {
				m.Cached = append(m.Cached, id)
			}
		}
	})
	return m
}

// watched reports whether the engine must collect changes for the observer. If the observer has become inactive,
// watched discards the collected changes.
func (e *Engine) watched() bool {
	if e.memory == nil {
		return false
	}
	if e.memory.Active() {
		return true
	}
	if e.change.Steps > 0 || len(e.change.Left) > 0 {
		e.change.reset()
	}
	return false
}

// noteSchedule adds a scheduled step to e.change. A step that has no rows, no preemptions and no copies is not added.
func (e *Engine) noteSchedule(s *step) {
	if !e.watched() || len(s.rows)+len(s.plan.Preempted)+len(s.input.copies) == 0 {
		return
	}
	c := &e.change
	c.Steps++
	for _, id := range s.plan.Preempted {
		if q := e.live[id]; q != nil {
			c.Preempted = append(c.Preempted, serve.Preemption{ID: q.stream.number})
		}
	}
	for _, p := range s.input.copies {
		c.Copies = append(c.Copies, device.Pair{Src: p.Src, Dst: p.Dst})
	}
	for i := range s.rows {
		e.noteRow(&s.rows[i], &s.plan.Rows[i])
	}
}

func (e *Engine) noteRow(r *row, planned *sched.Row) {
	c, q := &e.change, r.q
	n := planned.NumScheduledTokens
	if r.computed+n < q.prompt || planned.Kind == sched.KindResumed || planned.Kind == sched.KindNew && q.index == 0 || n > 1+len(r.drafts) {
		p := serve.Prefill{ID: q.stream.number, Start: r.computed, Tokens: n, Seqs: len(q.stream.answers), Last: r.last}
		if planned.Kind != sched.KindRunning {
			p.Start, p.Tokens, p.Cached = 0, r.computed+n, r.computed
			size := e.config.BlockSize
			for _, table := range q.tables {
				c.Hits = append(c.Hits, table[:min(len(table), r.computed/size)]...)
			}
		}
		c.Prefills = append(c.Prefills, p)
		return
	}
	index, known := c.begun[q.stream.number]
	if !known {
		index = len(c.Decodes)
		c.begun[q.stream.number] = index
		c.Decodes = append(c.Decodes, serve.Decode{ID: q.stream.number, Seqs: q.stream.unfinished()})
	}
	c.Decodes[index].Context = max(c.Decodes[index].Context, r.computed+n)
}

// noteLeft adds the request s to e.change.Left if all its answers have ended.
func (e *Engine) noteLeft(s *Stream) {
	if e.watched() && s.unfinished() == 0 {
		e.change.Left = append(e.change.Left, s.number)
	}
}

// showMemory passes the collected change to the observer.
func (e *Engine) showMemory(idle bool) {
	if !e.watched() || e.change.Steps == 0 && len(e.change.Left) == 0 {
		return
	}
	if e.change.Idle = idle; e.memory.Memory(&e.change) {
		e.change.reset()
	}
}

func (c *MemoryChange) reset() {
	c.Iteration.Reset()
	c.Left, c.Hits, c.Steps = c.Left[:0], c.Hits[:0], 0
	clear(c.begun)
}
