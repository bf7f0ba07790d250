package v0

import (
	"fmt"

	"llmmemory/internal/scheduling/device"
)

// CanSwapOut reports whether the CPU has enough free blocks for a group's running sequences (vllm/v0/RULES.md §4).
func (m *Manager) CanSwapOut(group ...*Seq) bool {
	return okOrLater(m.swapNeed(group, 0), m.cpu.NumFree(), 0) == OK
}

// CanSwapIn returns whether the swapped sequences of a group fit on the GPU (vllm/v0/RULES.md §4). swapNeed counts the
// blocks that they need. The result is OK if at least as many blocks as the watermark says stay free. The result is
// Never if the sequences need more blocks than the GPU has. Otherwise it is Later.
//
// As in vLLM, the result is Later even for a group that can never be swapped in: it fits on an empty GPU, but too few
// blocks would stay free.
func (m *Manager) CanSwapIn(lookahead int, group ...*Seq) Status {
	need := m.swapNeed(group, lookahead)
	if m.config.NumGPUBlocks < need {
		return Never
	}
	return okOrLater(need, m.View.FreeGPU(), m.watermark)
}

// swapNeed returns the number of blocks needed to swap a group, as vLLM counts them. It counts the full blocks of each
// sequence, and the blocks of the sequence's next tokens. A shared block counts once for each sequence. Empty lookahead
// blocks do not count, although they are swapped.
func (m *Manager) swapNeed(group []*Seq, lookahead int) int {
	n := 0
	for _, s := range group {
		n += s.touched(m.config.BlockSize, lookahead) + s.fullBlocks(m.config.BlockSize)
	}
	return n
}

// SwapOut moves the tables of a group to the CPU. It appends to dst the copies that the caller must make. In these
// copies, the ids of GPU blocks and the ids of CPU blocks both count from 0. A shared block is copied for each of its
// sequences, so no block of the group is shared after SwapOut (vllm/v0/RULES.md §4).
func (m *Manager) SwapOut(dst []device.Pair, group ...*Seq) ([]device.Pair, error) {
	return m.swap(dst, group, &m.gpu, &m.cpu)
}

// SwapIn moves the tables of a group back to the GPU. It appends to dst the copies that the caller must make. In these
// copies, the ids of GPU blocks and the ids of CPU blocks both count from 0. No block of the group is shared after
// SwapIn.
func (m *Manager) SwapIn(dst []device.Pair, group ...*Seq) ([]device.Pair, error) {
	return m.swap(dst, group, &m.cpu, &m.gpu)
}

func (m *Manager) swap(dst []device.Pair, group []*Seq, source, target *device.Device) ([]device.Pair, error) {
	if err := m.checkSwap(group, source, target); err != nil {
		return dst, err
	}
	for _, s := range group {
		m.drop(source, s.table)
		for i, id := range s.table {
			s.table[i] = target.Take()
			dst = append(dst, device.Pair{Src: id - source.First(), Dst: s.table[i] - target.First()})
		}
		if target == &m.gpu {
			m.logical += len(s.table)
		} else {
			m.logical -= len(s.table)
		}
	}
	return dst, nil
}

func (m *Manager) checkSwap(group []*Seq, source, target *device.Device) error {
	if m.prefix != nil {
		return fmt.Errorf("%w: swapping with prefix caching", ErrSequence)
	}
	need := 0
	for _, s := range group {
		if !s.known || s.moved || len(s.table) > 0 && m.deviceOf(s) != source {
			return fmt.Errorf("%w: a swap of a sequence with a table: %t, its window has moved: %t, on the other device: %t",
				ErrSequence, s.known, s.moved, m.deviceOf(s) != source)
		}
		need += len(s.table)
	}
	if need > target.NumFree() {
		return fmt.Errorf("%w: %d needed for a swap, %d free", ErrNoFreeBlocks, need, target.NumFree())
	}
	return nil
}
