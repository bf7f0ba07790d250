package kvcache

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/vllm/blockhash"
	"llmmemory/internal/vllm/v1/pool"
)

func newManager(t *testing.T, blocks int) *Manager {
	m, err := NewManager(Config{
		Blocks: blocks, Groups: []Group{{Kind: Full, Block: 4}, {Kind: SlidingWindow, Block: 4, Window: 9}},
		Caching: true, Hash: blockhash.LE{}, MaxModelLen: 64, Events: true,
	})
	require.NoError(t, err)
	return m
}

func TestManager(t *testing.T) {
	m := newManager(t, 30)
	a, err := m.Add(Spec{Tokens: counting(9)})
	require.NoError(t, err)
	hit, ok, err := m.Admit(a, 0, Alloc{MustFit: true})
	require.NoError(t, err)
	require.True(t, ok)
	require.Zero(t, hit)
	_, _, err = m.Admit(a, 0, Alloc{})
	require.ErrorIs(t, err, ErrRequest, "it was admitted")
	b, err := m.Add(Spec{Tokens: counting(9)})
	require.NoError(t, err)
	_, _, err = m.Admit(b, 0, Alloc{External: 8})
	require.ErrorIs(t, err, ErrRequest, "more than there is")
	hit, ok, err = m.Admit(b, 0, Alloc{})
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, 8, hit)
	require.Equal(t, Stats{Requests: 2, Queries: 18, Hits: 8}, m.TakeStats())
	table, err := m.Table(nil, b, 0)
	require.NoError(t, err)
	require.Len(t, table, 3)
	_, err = m.Table(nil, b, 2)
	require.ErrorIs(t, err, ErrRequest)

	require.NoError(t, m.Append(a, 9))
	child, err := m.Fork(a)
	require.NoError(t, err)
	ok, err = m.Extend(child, 3, 0) // a token and two drafts
	require.NoError(t, err)
	require.True(t, ok)
	require.Len(t, m.TakeCopies(nil), 2, "in each group")
	require.NoError(t, m.Rollback(child, 10))
	require.NoError(t, m.Store(child, 8))
	require.False(t, m.Reset())
	require.NoError(t, m.Preempt(child))
	for _, id := range []ID{a, b, child} {
		require.NoError(t, m.Drop(id))
		require.ErrorIs(t, m.Drop(id), ErrRequest, "it is gone")
	}
	require.True(t, m.Reset())
	m.Inspect(func(c *Cache) { require.NoError(t, c.Check()) })
}

// Ensure that 32 goroutines can do everything at once.
func TestLoadOfManyGoroutines(t *testing.T) {
	m := newManager(t, 80)
	var all sync.WaitGroup
	for g := range 32 {
		all.Go(func() {
			for i := range 60 {
				if err := serve(m, g, i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	m.TakeCopies(nil)
	m.Inspect(func(c *Cache) {
		require.NoError(t, c.Check())
		require.Equal(t, 79, c.Pool().NumFree())
	})
}

// serve takes a request through its life, if there are blocks for it.
func serve(m *Manager, g, i int) error {
	id, err := m.Add(Spec{Tokens: counting(6 + g%3*4)})
	if err != nil {
		return err
	}
	defer m.Drop(id)
	if _, ok, err := m.Admit(id, 0, Alloc{}); err != nil || !ok {
		return err
	}
	for k := range 10 {
		if err := m.Append(id, int32(g*k)); err != nil {
			return err
		}
		if ok, err := m.Extend(id, 1, 0); err != nil || !ok {
			return err
		}
	}
	switch i % 4 {
	case 0:
		child, err := m.Fork(id)
		if err == nil {
			err = m.Drop(child)
		}
		return err
	case 1:
		var events pool.Events
		m.TakeEvents(&events)
		m.TakeCopies(nil)
	case 2:
		var err error
		m.Inspect(func(c *Cache) { err = c.Check() })
		return err
	case 3:
		m.Reset()
		return errors.Join(m.Preempt(id))
	}
	return nil
}
