package v0

import (
	"fmt"

	"llmmemory/internal/scheduling/device"
)

// Status is vLLM's AllocStatus: whether a request can be admitted.
type Status uint8

const (
	OK    Status = iota // it can be admitted now
	Later               // others use the blocks that it needs
	Never               // the pool is too small
)

func (s Status) String() string { return [...]string{"OK", "LATER", "NEVER"}[s] }

// CanAllocate returns whether a prompt can be admitted. It ignores how many sequences the request has and which
// blocks are cached (vllm/v0/RULES.md §3).
func (m *Manager) CanAllocate(tokens, lookahead int) Status {
	need := ceil(tokens+lookahead, m.config.BlockSize)
	if m.config.SlidingWindow > 0 {
		need = min(need, m.View.WindowBlocks())
	}
	if m.config.NumGPUBlocks-need < m.watermark {
		return Never
	}
	return okOrLater(need, m.View.FreeGPU(), m.watermark)
}

func okOrLater(need, free, watermark int) Status {
	if free-need >= watermark {
		return OK
	}
	return Later
}

// Allocate makes a table for all tokens of first. The others, which are the other sequences of the group, get copies of
// this table that name the same blocks (vllm/v0/RULES.md §2). The sequences must be equally long and have no table.
func (m *Manager) Allocate(first *Seq, others ...*Seq) error {
	if err := m.checkAllocate(first, others); err != nil {
		return err
	}
	m.allocate(first)
	for _, s := range others {
		m.share(first, s)
	}
	return nil
}

// allocate is Allocate for one sequence without the check.
func (m *Manager) allocate(first *Seq) {
	size := m.config.BlockSize
	whole := first.Len / size
	first.table = m.tables.Take()
	for i := range whole {
		if m.prefix != nil {
			first.table = append(first.table, m.allocateChunk(first, i))
		} else {
			first.table = append(first.table, m.take())
		}
	}
	if first.Len%size > 0 {
		first.table = append(first.table, m.take())
	}
	first.full, first.known = first.Len, true
	m.logical += len(first.table)
}

func (m *Manager) checkAllocate(first *Seq, others []*Seq) error {
	if first.known {
		return fmt.Errorf("%w: it has a table already", ErrSequence)
	}
	if first.Len < 0 || m.prefix != nil && len(first.Tokens) < first.Len {
		return fmt.Errorf("%w: %d tokens, of which %d are given", ErrSequence, first.Len, len(first.Tokens))
	}
	for _, s := range others {
		if s.known || s.Len != first.Len {
			return fmt.Errorf("%w: a sequence of %d tokens, in a table already: %t, in a group of %d tokens", ErrSequence, s.Len, s.known, first.Len)
		}
	}
	need := ceil(first.Len, m.config.BlockSize)
	if m.prefix != nil {
		need -= m.inUse(first)
	}
	if free := m.View.FreeGPU(); need > free {
		return fmt.Errorf("%w: %d needed for a prompt of %d tokens, %d free", ErrNoFreeBlocks, need, first.Len, free)
	}
	return nil
}

// Fork gives child a copy of parent's table and adds a reference to each block. It does nothing if parent has no table.
// The error wraps ErrSequence if child already has a table, or if blocks of parent's table have left the sliding window
// (vllm/v0/RULES.md §2).
func (m *Manager) Fork(parent, child *Seq) error {
	if !parent.known {
		return nil
	}
	if child.known {
		return fmt.Errorf("%w: the child of a fork has a table already", ErrSequence)
	}
	if parent.moved {
		return fmt.Errorf("%w: a fork of a table whose window has moved", ErrSequence)
	}
	m.share(parent, child)
	return nil
}

func (m *Manager) share(parent, child *Seq) {
	child.table = append(m.tables.Take(), parent.table...)
	child.full, child.known = parent.full, true
	d := m.deviceOf(parent)
	for _, id := range child.table {
		d.Ref(id)
	}
	if d == &m.gpu {
		m.logical += len(child.table)
	}
}

func (m *Manager) deviceOf(s *Seq) *device.Device {
	if len(s.table) > 0 && m.cpu.Has(s.table[0]) {
		return &m.cpu
	}
	return &m.gpu
}

// Free drops the references of s to its blocks, in logical order, and removes its table.
// It does nothing if s has no table (vllm/v0/RULES.md §2).
func (m *Manager) Free(s *Seq) {
	if !s.known {
		return
	}
	d := m.deviceOf(s)
	if m.prefix != nil {
		m.freeCached(s)
	} else {
		m.drop(d, s.table)
	}
	if d == &m.gpu {
		m.logical -= len(s.table)
	}
	m.tables.Give(s.table)
	s.reset()
}

// drop drops a reference to each of the blocks ids, in this order, except the null block.
func (m *Manager) drop(d *device.Device, ids []int32) {
	for _, id := range ids {
		if id != m.null {
			d.Drop(id)
		}
	}
}
