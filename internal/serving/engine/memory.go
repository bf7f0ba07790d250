package engine

import (
	"llmmemory/internal/scheduling/device"
	"llmmemory/internal/scheduling/serve"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/scheduling/vllm/v1/sched"
)

// A MemoryObserver is shown what steps do to the blocks.
type MemoryObserver interface {
	// Active reports whether anything reads the states; if not, none are collected. It is
	// called often.
	Active() bool

	// Memory shows what has happened since it last returned true. It is called at
	// the end of a step, and when the engine has nothing to do, under the engine's
	// lock; it must return soon and keep nothing of it.
	Memory(*MemoryChange) bool
}

// A MemoryChange is what one or more steps did. Requests are numbered from 1 as
// they came.
type MemoryChange struct {
	serve.Iteration       // what was scheduled; chunks of one prompt stand one after the other
	Left            []int // requests that have ended
	Hits            []int32
	Steps           int
	Idle            bool // the engine has nothing to do now

	engine *Engine
	begun  map[int]int // places in Decodes
}

// A MemoryState says which requests have which blocks.
type MemoryState struct {
	Answers          []AnswerBlocks // those with blocks
	Waiting, Running []int          // requests
	Cached           []int32        // free blocks that a prefix hit can still find
}

// AnswerBlocks are the blocks of an answer to a request. Of a model with several groups of layers each has its own:
// Index is the number of the answer times that of groups, plus the group.
type AnswerBlocks struct {
	Request, Index int
	Tokens         int     // that are computed
	Table          []int32 // the null block, 0, stands for what has left a sliding window
}

// State is the present state.
func (c *MemoryChange) State() *MemoryState { return c.engine.memoryState() }

// WatchMemory sets the observer of the blocks.
func (e *Engine) WatchMemory(o MemoryObserver) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.memory = o
	e.change = MemoryChange{engine: e, begun: map[int]int{}}
}

// MemoryState is the present state.
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

// watched reports whether steps are to be noted. It discards earlier notes when the
// observer becomes inactive.
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

// noteSchedule notes what was scheduled, if anything.
func (e *Engine) noteSchedule(s *step) {
	if !e.watched() || len(s.rows)+len(s.plan.Preempted)+len(s.message.copies) == 0 {
		return
	}
	c := &e.change
	c.Steps++
	for _, id := range s.plan.Preempted {
		if q := e.live[id]; q != nil {
			c.Preempted = append(c.Preempted, serve.Preemption{ID: q.stream.number})
		}
	}
	for _, p := range s.message.copies {
		c.Copies = append(c.Copies, device.Pair{Src: p.Src, Dst: p.Dst})
	}
	for i := range s.rows {
		e.noteRow(&s.rows[i], &s.plan.Rows[i])
	}
}

func (e *Engine) noteRow(r *row, planned *sched.Row) {
	c, q := &e.change, r.q
	n := planned.NumScheduledTokens
	if r.from+n < q.prompt || planned.Kind == sched.KindResumed || planned.Kind == sched.KindNew && q.index == 0 || n > 1+len(r.drafts) {
		p := serve.Prefill{ID: q.stream.number, Start: r.from, Tokens: n, Seqs: len(q.stream.answers), Last: r.last}
		if planned.Kind != sched.KindRunning {
			p.Start, p.Tokens, p.Cached = 0, r.from+n, r.from
			size := e.config.BlockSize
			for _, table := range q.tables {
				c.Hits = append(c.Hits, table[:min(len(table), r.from/size)]...)
			}
		}
		c.Prefills = append(c.Prefills, p)
		return
	}
	at, known := c.begun[q.stream.number]
	if !known {
		at = len(c.Decodes)
		c.begun[q.stream.number] = at
		c.Decodes = append(c.Decodes, serve.Decode{ID: q.stream.number, Seqs: q.stream.unfinished()})
	}
	c.Decodes[at].Context = max(c.Decodes[at].Context, r.from+n)
}

// noteLeft notes that the last answer of a request has ended.
func (e *Engine) noteLeft(s *Stream) {
	if e.watched() && s.unfinished() == 0 {
		e.change.Left = append(e.change.Left, s.number)
	}
}

// showMemory shows what was noted.
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
