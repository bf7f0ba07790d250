package kvcache

import (
	"fmt"
	"sync"

	"llmmemory/internal/vllm/v1/handle"
	"llmmemory/internal/vllm/v1/pool"
)

// ID names a request of a Manager until it is dropped, and nothing after that.
// No ID is 0.
type ID uint64

// A Manager is a Cache that many goroutines may use: every method is atomic,
// under one lock that is held for its duration. What belongs together must be
// one call: between Lookup and Allocate somebody else may evict the hit, which
// is then ErrStale; Admit does both at once.
type Manager struct {
	mu       sync.Mutex
	cache    *Cache
	requests handle.Table[Request]
	hit      Hit
}

// NewManager makes a manager with its cache.
func NewManager(config Config) (*Manager, error) {
	c, err := New(config)
	if err != nil {
		return nil, err
	}
	return &Manager{cache: c}, nil
}

// Add makes a request.
func (m *Manager) Add(s Spec) (ID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.cache.Add(s)
	if err != nil {
		return 0, err
	}
	return m.enter(r), nil
}

func (m *Manager) enter(r *Request) ID {
	id := m.requests.Add(r)
	r.Tag = id
	return ID(id)
}

// with calls f with the request under the lock.
func (m *Manager) with(id ID, f func(*Request) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.requests.Get(uint64(id))
	if r == nil {
		return fmt.Errorf("%w: none has the id %#x, or it was dropped", ErrRequest, uint64(id))
	}
	return f(r)
}

// Admit looks up the longest cached prefix of a waiting request and allocates
// behind it for want more tokens, or as many as there are if want is 0. It
// advances the computed tokens and returns how many the cache held; ok is
// false, and nothing has changed, if the blocks are not there. a.New and a.Hit
// are filled in.
func (m *Manager) Admit(id ID, want int, a Alloc) (hit int, ok bool, err error) {
	err = m.with(id, func(r *Request) error {
		if r.computed != 0 || r.hasBlocks() {
			return fmt.Errorf("%w: it was admitted already", ErrRequest)
		}
		m.cache.Lookup(r, &m.hit)
		a.Hit, a.New = &m.hit, r.NumTokens()-m.hit.Tokens-a.External
		if want > 0 {
			a.New = min(a.New, want)
		}
		if a.New < 0 {
			return fmt.Errorf("%w: %d external tokens behind a hit of %d are more than its %d", ErrRequest, a.External, m.hit.Tokens, r.NumTokens())
		}
		if ok, err = m.cache.Allocate(r, &a); ok {
			hit = m.hit.Tokens
			m.cache.Record(r, hit)
			r.computed = hit + a.External + a.New
		}
		return err
	})
	return hit, ok, err
}

// Extend allocates for n more tokens of a running request and advances its
// computed tokens.
func (m *Manager) Extend(id ID, n, lookahead int) (ok bool, err error) {
	err = m.with(id, func(r *Request) error {
		if ok, err = m.cache.Allocate(r, &Alloc{New: n, Lookahead: lookahead}); ok {
			r.computed += n
		}
		return err
	})
	return ok, err
}

// Append adds generated tokens.
func (m *Manager) Append(id ID, tokens ...int32) error {
	return m.with(id, func(r *Request) error {
		m.cache.Append(r, tokens...)
		return nil
	})
}

// Store registers blocks that were allocated with Delay.
func (m *Manager) Store(id ID, tokens int) error {
	return m.with(id, func(r *Request) error { return m.cache.Store(r, tokens) })
}

// Fork makes a request that shares all blocks of another one.
func (m *Manager) Fork(id ID) (child ID, err error) {
	err = m.with(id, func(r *Request) error {
		forked, err := m.cache.Fork(r, 0)
		if err == nil {
			child = m.enter(forked)
		}
		return err
	})
	return child, err
}

// Rollback moves the computed tokens back and gives the blocks behind them
// back.
func (m *Manager) Rollback(id ID, computed int) error {
	return m.with(id, func(r *Request) error { return m.cache.Rollback(r, computed) })
}

// Preempt takes all blocks of a request away.
func (m *Manager) Preempt(id ID) error {
	return m.with(id, func(r *Request) error {
		m.cache.Preempt(r)
		return nil
	})
}

// Drop ends a request.
func (m *Manager) Drop(id ID) error {
	return m.with(id, func(r *Request) error {
		m.requests.Remove(uint64(id))
		m.cache.Drop(r)
		return nil
	})
}

// Table appends the block table of a group to dst.
func (m *Manager) Table(dst []int32, id ID, group int) ([]int32, error) {
	err := m.with(id, func(r *Request) error {
		if group < 0 || group >= len(r.tables) {
			return fmt.Errorf("%w: group %d of %d", ErrRequest, group, len(r.tables))
		}
		dst = append(dst, r.tables[group].ids...)
		return nil
	})
	return dst, err
}

// Inspect calls f with the cache under the lock. f must not call the manager
// and must not keep what it gets.
func (m *Manager) Inspect(f func(*Cache)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m.cache)
}

// Reset, TakeStats, TakeEvents and TakeCopies are those of Cache.

func (m *Manager) Reset() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cache.Reset()
}

func (m *Manager) TakeStats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cache.TakeStats()
}

func (m *Manager) TakeEvents(dst *pool.Events) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cache.TakeEvents(dst)
}

func (m *Manager) TakeCopies(dst []Copy) []Copy {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cache.TakeCopies(dst)
}
