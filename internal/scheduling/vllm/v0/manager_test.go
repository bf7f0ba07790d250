package v0

import (
	"testing"

	"llmmemory/internal/scheduling/device"

	"github.com/stretchr/testify/require"
)

func manager(t *testing.T, c Config) *Manager {
	m, err := New(c)
	require.NoError(t, err)
	return m
}

func allocated(t *testing.T, m *Manager, length int, tokens ...int32) *Seq {
	s := &Seq{Len: length, Tokens: tokens}
	require.NoError(t, m.Allocate(s))
	return s
}

func TestCheckSeesDamage(t *testing.T) {
	damage := map[string]func(m *Manager, s *Seq){
		"a block in two places of a table":    func(_ *Manager, s *Seq) { s.table[1] = s.table[0] },
		"a block that is in no table":         func(_ *Manager, s *Seq) { s.table = s.table[:1]; s.full = 2 },
		"a reference too many":                func(m *Manager, s *Seq) { m.gpu.Ref(s.table[0]) },
		"a block in use in the stack":         func(m *Manager, s *Seq) { m.gpu.Drop(s.table[0]) },
		"a block lost":                        func(m *Manager, _ *Seq) { m.gpu.Unref(m.gpu.Take()) },
		"tokens without blocks":               func(_ *Manager, s *Seq) { s.full, s.Len = 9, 9 },
		"a key of another prefix":             func(m *Manager, s *Seq) { m.prefix.blocks[s.table[0]].tokens = 4 },
		"a cached block that cannot be found": func(m *Manager, _ *Seq) { clear(m.prefix.cached) },
		"a block in use in the evictor":       func(m *Manager, s *Seq) { m.prefix.evictor.PushBack(s.table[0]) },
		"a miscounted entry":                  func(m *Manager, _ *Seq) { m.logical++ },
	}
	for name, f := range damage {
		t.Run(name, func(t *testing.T) {
			m := manager(t, Config{BlockSize: 2, NumGPUBlocks: 8, EnablePrefixCaching: true})
			s := allocated(t, m, 5, 1, 2, 3, 4, 5, 6, 7, 8, 9)
			all := func(yield func(*Seq) bool) { yield(s) }
			require.NoError(t, m.Check(all))
			f(m, s)
			require.Error(t, m.Check(all))
		})
	}
}

// Ensure that a wrong call is refused with a reason. Calls are refused, too, if vLLM itself handles them wrongly.
func TestMisuseIsRefusedWithAReason(t *testing.T) {
	for name, c := range map[string]Config{
		"blocks without tokens":   {NumGPUBlocks: 1},
		"a negative device":       {BlockSize: 1, NumGPUBlocks: -1},
		"more than all":           {BlockSize: 1, Watermark: 1.5},
		"a negative window":       {BlockSize: 1, SlidingWindow: -1},
		"a window that is cached": {BlockSize: 1, SlidingWindow: 1, EnablePrefixCaching: true},
	} {
		_, err := New(c)
		require.ErrorIs(t, err, ErrConfig, name)
	}
	m := manager(t, Config{BlockSize: 2, NumGPUBlocks: 20, NumCPUBlocks: 20, SlidingWindow: 2})
	s := allocated(t, m, 16)
	require.ErrorIs(t, m.Allocate(s), ErrSequence)
	require.ErrorIs(t, m.Fork(s, s), ErrSequence)
	_, err := m.Append(nil, &Seq{}, 0, 0)
	require.ErrorIs(t, err, ErrSequence)
	_, err = m.SwapIn(nil, s)
	require.ErrorIs(t, err, ErrSequence)
	_, err = m.Append(nil, s, 0, 16)
	require.NoError(t, err)
	_, err = m.SwapOut(nil, s)
	require.ErrorIs(t, err, ErrSequence, "its window has moved")
	require.ErrorIs(t, m.Fork(s, &Seq{Len: 16}), ErrSequence, "its window has moved")

	child := &Seq{}
	require.NoError(t, m.Fork(&Seq{}, child), "of a parent that is unknown")
	require.False(t, child.known)
	m.Free(&Seq{}) // unknown, too
}

// Ensure that an append reuses the blocks before its window only if no other sequence shares them.
func TestSharedBlocksThatLeaveAWindowAreNotFree(t *testing.T) {
	m := manager(t, Config{BlockSize: 1, NumGPUBlocks: 6, SlidingWindow: 1})
	parent, child := &Seq{Len: 5}, &Seq{Len: 5}
	require.NoError(t, m.Allocate(parent))
	require.NoError(t, m.Fork(parent, child))
	parent.Len = 6 // the new token takes the last free block, and the null block would need another
	_, err := m.Append(nil, parent, 0, 5)
	require.ErrorIs(t, err, ErrNoFreeBlocks)
	m.Free(child)
	_, err = m.Append(nil, parent, 0, 5)
	require.NoError(t, err)
	require.Equal(t, 1, m.View.FreeGPU(), "two have left, one was taken")
}

func TestAnAppendMayUseABlockThatAPromotionReturns(t *testing.T) {
	m := manager(t, Config{BlockSize: 2, NumGPUBlocks: 6, EnablePrefixCaching: true})
	tokens := []int32{1, 2, 3, 4, 5, 6}
	other := allocated(t, m, 4, tokens...)
	s := allocated(t, m, 3, tokens...)
	_, err := m.Append(nil, s, 1, 3) // an empty block after the partial one
	require.NoError(t, err)
	_, err = m.Append(nil, s, 3, 3)
	require.NoError(t, err)
	child := &Seq{Len: 3, Tokens: tokens}
	require.NoError(t, m.Fork(s, child))
	for m.View.FreeGPU() > 1 {
		require.NoError(t, m.Allocate(&Seq{Len: 1, Tokens: []int32{9}}))
	}
	s.Len = 6
	require.Len(t, s.table, 3)
	require.Equal(t, 2, m.copies(s))
	copies, err := m.Append(nil, s, 0, 3)
	require.NoError(t, err)
	require.Equal(t, device.Pair{Src: child.table[2], Dst: s.table[2]}, copies[1])
	require.Equal(t, other.table[1], s.table[1])
}

// Ensure that blocks count as computed as soon as their batch is formed. The last block of a table must never count.
func TestTheLastBlockOfATableIsNeverComputed(t *testing.T) {
	m := manager(t, Config{BlockSize: 2, NumGPUBlocks: 20, EnablePrefixCaching: true})
	tokens := []int32{1, 2, 3, 4, 5, 6, 7}
	with := func(n int) *Seq { return allocated(t, m, n, tokens...) }
	first := with(7)
	require.Empty(t, m.Computed(nil, first))
	same := with(7)
	require.Empty(t, m.Computed(nil, same), "in the same batch")
	m.MarkComputed()
	require.Empty(t, m.Computed(nil, first), "after a gap")
	later, short := with(7), with(6)
	require.Equal(t, first.table[:3], m.Computed(nil, later))
	require.Equal(t, first.table[:2], m.Computed(nil, short))
	require.Equal(t, first.table[:2], m.Computed(nil, first, later, short), "the common beginning of those that have any")

	for _, s := range []*Seq{first, same, later, short} {
		m.Free(s)
	}
	require.Equal(t, 20, m.View.FreeGPU())
	again := with(7)
	require.Len(t, m.Computed(nil, again), 3, "restored blocks are computed")
}

// Ensure that a prompt gets Never if the pool has fewer blocks than the prompt and the watermark together need. A
// swapped sequence gets Never only if the pool has fewer blocks than the sequence alone needs.
func TestAdmissionLeavesTheWatermarkFree(t *testing.T) {
	m := manager(t, Config{BlockSize: 1, NumGPUBlocks: 10, NumCPUBlocks: 10, Watermark: 0.29})
	require.Equal(t, 2, m.View.Watermark())
	require.Equal(t, OK, m.CanAllocate(8, 0))
	require.Equal(t, Never, m.CanAllocate(9, 0))
	require.Equal(t, Never, m.CanAllocate(8, 1))
	require.NoError(t, m.Allocate(&Seq{Len: 1}))
	require.Equal(t, Later, m.CanAllocate(8, 0))

	s := &Seq{Len: 8}
	require.NoError(t, m.Allocate(s))
	require.True(t, m.CanAppend(0, &Seq{}, s))
	s.Len = 10
	require.False(t, m.CanAppend(0, s), "two more tokens, one free block")
	s.Len = 8
	require.True(t, m.CanSwapOut(s))
	_, err := m.SwapOut(nil, s)
	require.NoError(t, err)
	require.Equal(t, Later, m.CanSwapIn(0, s), "8 and the watermark are not free")
	s.Len = 10
	require.Equal(t, Later, m.CanSwapIn(0, s), "10 are not more than there are: vLLM waits for ever")
	s.Len = 11
	require.Equal(t, Never, m.CanSwapIn(0, s))
}
