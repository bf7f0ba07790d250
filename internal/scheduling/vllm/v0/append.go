package v0

import (
	"fmt"

	"llmmemory/internal/block"
	"llmmemory/internal/scheduling/device"
)

// CanAppend reports whether there are enough free blocks for the unseen tokens of a group's running sequences, and for
// as many later tokens of each sequence as lookahead says. It requires as many free blocks as there are blocks to which
// these tokens will be written. A block that is already in the table counts too, also a partly filled last block if
// there are no such tokens. CanAppend ignores the watermark (vllm/v0/RULES.md §3).
func (m *Manager) CanAppend(lookahead int, group ...*Seq) bool {
	touched := 0
	for _, s := range group {
		touched += s.touched(m.config.BlockSize, lookahead)
	}
	return touched <= m.View.FreeGPU()
}

// Append adds the unseen tokens of s to its table. It also adds empty blocks for as many later tokens as lookahead
// says. It appends to dst the copies that the caller must make (vllm/v0/RULES.md §2). computed is the number of
// computed tokens of s, which determines where the sliding window begins. If too few blocks are free, the error wraps
// ErrNoFreeBlocks.
func (m *Manager) Append(dst []device.Pair, s *Seq, lookahead, computed int) ([]device.Pair, error) {
	if err := m.checkAppend(s, lookahead, computed); err != nil {
		return dst, err
	}
	return m.append(dst, s, lookahead, computed), nil
}

// append is Append without the check.
func (m *Manager) append(dst []device.Pair, s *Seq, lookahead, computed int) []device.Pair {
	if m.config.SlidingWindow > 0 {
		m.slide(s, computed)
	}
	for range m.freshBlocks(s, lookahead) {
		s.table = append(s.table, m.take())
		m.logical++
	}
	size := m.config.BlockSize
	for i := s.full / size; s.full < s.Len; i++ {
		s.full = min(s.Len, (i+1)*size)
		if m.gpu.Shared(s.table[i]) {
			dst = append(dst, m.gpu.CopyOnWrite(&s.table[i], m.take()))
		}
		if m.prefix != nil && s.full == (i+1)*size {
			m.promote(s, i)
		}
	}
	return dst
}

func (m *Manager) freshBlocks(s *Seq, lookahead int) int {
	return max(0, ceil(s.Len+lookahead, m.config.BlockSize)-len(s.table))
}

func (m *Manager) checkAppend(s *Seq, lookahead, computed int) error {
	switch {
	case !s.known:
		return fmt.Errorf("%w: append to a sequence without a table", ErrSequence)
	case m.deviceOf(s) != &m.gpu:
		return fmt.Errorf("%w: append to a sequence that is swapped out", ErrSequence)
	case s.Len < s.full || lookahead < 0 || computed < 0 || computed > s.Len:
		return fmt.Errorf("%w: %d tokens with %d in the table, %d computed, %d lookahead", ErrSequence, s.Len, s.full, computed, lookahead)
	case m.prefix != nil && len(s.Tokens) < s.Len:
		return fmt.Errorf("%w: %d tokens, of which %d are given", ErrSequence, s.Len, len(s.Tokens))
	}
	free := m.View.FreeGPU()
	if m.config.SlidingWindow > 0 {
		if m.null == block.None {
			free--
		}
		if free < 0 {
			return fmt.Errorf("%w: none for the null block, which entries outside the window name", ErrNoFreeBlocks)
		}
		free += m.leaving(s, computed)
	}
	need := m.freshBlocks(s, lookahead) + m.copies(s)
	if need <= free || m.prefix != nil && m.promotionsHelp(s, free-m.freshBlocks(s, lookahead)) {
		return nil
	}
	return fmt.Errorf("%w: %d needed for %d more tokens, %d free", ErrNoFreeBlocks, need, s.Unseen(), free)
}

func (m *Manager) copies(s *Seq) int {
	n := 0
	size := m.config.BlockSize
	for i := s.full / size; s.Unseen() > 0 && i < len(s.table) && i*size < s.Len; i++ {
		if m.gpu.Shared(s.table[i]) {
			n++
		}
	}
	return n
}

// slide replaces the blocks before the sliding window by the null block. The first call takes the null block from the
// GPU (vllm/v0/RULES.md §5).
func (m *Manager) slide(s *Seq, computed int) {
	if m.null == block.None {
		m.null = m.take()
	}
	for i := range m.entriesBeforeWindow(s, computed) {
		if id := s.table[i]; id != m.null {
			m.gpu.Drop(id)
			s.table[i] = m.null
			s.moved = true
		}
	}
}

// entriesBeforeWindow returns the number of table entries before the window.
func (m *Manager) entriesBeforeWindow(s *Seq, computed int) int {
	return min(max(0, computed/m.config.BlockSize-m.View.WindowBlocks()), len(s.table))
}

func (m *Manager) leaving(s *Seq, computed int) int {
	n := 0
	for _, id := range s.table[:m.entriesBeforeWindow(s, computed)] {
		if id != m.null && m.gpu.Count(id) == 1 {
			n++
		}
	}
	return n
}
