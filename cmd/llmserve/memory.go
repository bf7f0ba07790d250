package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"llmmemory/internal/block"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/view"
)

const (
	memoryFrames = 600              // frames that are kept for pages
	lookTime     = 15 * time.Second // how long a page counts as open after a request
	askTime      = 10 * time.Second // how long a request waits for new frames
)

// A memoryMap records the changes of the blocks while a page of /memory is open.
type memoryMap struct {
	engine *engine.Engine
	head   view.Recording
	live   *view.Live
	began  time.Time
	pause  time.Duration // between frames of ordinary steps

	closing context.Context // ends when the server shuts down
	close   func()

	mu        sync.Mutex
	openUntil time.Time // a page counts as open until this time
	shown     time.Time // when the last frame was made
	preempted map[int]bool
}

// newMemoryMap begins to watch an engine. The error wraps view.ErrRecording if there are too many blocks for a page.
func newMemoryMap(e *engine.Engine, name string) (*memoryMap, error) {
	c, load := e.Config(), e.Load()
	m := &memoryMap{engine: e, began: time.Now(), preempted: map[int]bool{}, head: view.Recording{
		Title: name, System: "llmserve",
		Note:      "Live: the page stays at the last step while you are there. It records while it is open.",
		BlockSize: c.BlockSize, NumGPUBlocks: load.Blocks + 1, Held: view.NullBlock,
	}}
	m.pause = 50*time.Millisecond + time.Duration(load.Blocks)*20*time.Microsecond // a browser needs time to draw them
	live, err := view.NewLive(m.head, memoryFrames)
	if err != nil {
		return nil, err
	}
	m.live = live
	m.closing, m.close = context.WithCancel(context.Background())
	e.WatchMemory(m)
	return m, nil
}

// look records that a user is looking at a page now. It reports whether a page was open before this call.
func (m *memoryMap) look() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	before := now.Before(m.openUntil)
	m.openUntil = now.Add(lookTime)
	return before
}

// Active implements engine.MemoryObserver.
func (m *memoryMap) Active() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Before(m.openUntil)
}

// Memory implements engine.MemoryObserver. It combines all steps within m.pause into one frame, except steps with
// copies or preemptions, and the last step before the engine has no work.
func (m *memoryMap) Memory(c *engine.MemoryChange) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if !c.Idle && len(c.Copies) == 0 && len(c.Preempted) == 0 && now.Sub(m.shown) < m.pause {
		return false
	}
	last, ok := m.live.Last()
	if !ok {
		return true // the page has not been opened yet
	}
	f := m.frame(c.State())
	f.Copies = append(f.Copies, c.Copies...)
	f.Hits = append(f.Hits, c.Hits...)
	slices.Sort(f.Hits)
	f.Hits = slices.Compact(f.Hits)
	f.Said = m.head.Describe(&last, &f, &c.Iteration, c.Left, m.preempted)
	if c.Steps > 1 {
		f.Said = append(f.Said, fmt.Sprintf("These were %d steps of the model.", c.Steps))
	}
	for _, p := range c.Prefills {
		delete(m.preempted, p.ID)
	}
	for _, p := range c.Preempted {
		m.preempted[p.ID] = true
	}
	m.shown = now
	m.live.Add(f)
	return true
}

func (m *memoryMap) frame(s *engine.MemoryState) view.Frame {
	f := view.Frame{
		Now: time.Since(m.began).Seconds(), Blocks: m.head.NumGPUBlocks, Waiting: s.Waiting, Running: s.Running,
		Cached: s.Cached,
		Counts: []view.Count{{Block: 0, Count: 1}}, // the null block
	}
	for _, a := range s.Answers {
		for i, id := range a.Table {
			if id == 0 {
				a.Table[i] = block.None
			}
		}
		f.Sequences = append(f.Sequences, view.Sequence{Request: a.Request, Number: a.Index, Tokens: a.Tokens,
			Table: a.Table})
	}
	return f
}

func (m *memoryMap) page(w http.ResponseWriter, _ *http.Request) error {
	if !m.look() {
		m.live.Restart()
		f := m.frame(m.engine.MemoryState())
		f.Said = []string{"The memory as it is now."}
		m.live.Add(f)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	return m.live.Write(w, "memory/frames?from=")
}

// frames answers GET /memory/frames?from=N with all frames from number N on. If there is no such frame within
// askTime, it answers with status 204.
func (m *memoryMap) frames(w http.ResponseWriter, r *http.Request) error {
	start, err := strconv.Atoi(r.URL.Query().Get("from"))
	if err != nil || start < 0 {
		http.Error(w, "from is the number of a frame", http.StatusBadRequest)
		return nil
	}
	m.look()
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	defer context.AfterFunc(m.closing, cancel)()
	data, err := m.live.Since(ctx, start)
	switch {
	case err != nil:
		return err
	case data == nil:
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(data) // the browser may be gone
	return nil
}

type pages = map[string]func(http.ResponseWriter, *http.Request) error

// memoryPages returns the handlers of the memory map. The function stop ends the requests that wait for new
// frames.
func memoryPages(e *engine.Engine, name string) (all pages, stop func()) {
	m, err := newMemoryMap(e, name)
	if err != nil {
		return pages{"GET /memory": func(http.ResponseWriter, *http.Request) error { return err }}, func() {}
	}
	return pages{"GET /memory": m.page, "GET /memory/frames": m.frames}, m.close
}
