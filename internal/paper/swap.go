package paper

import (
	"fmt"

	"llmmemory/internal/block"
)

// CanSwapOut says whether the CPU has room for the distinct blocks of a group.
func (m *Manager) CanSwapOut(g *Group) bool { return m.distinct(g) <= m.cpu.NumFree() }

// CanSwapIn says whether the GPU has room for the distinct blocks of a group, a
// new one for each sequence, and the watermark.
func (m *Manager) CanSwapIn(g *Group) bool {
	return m.gpu.NumFree()-(m.distinct(g)+g.Running()) >= m.watermark
}

// distinct counts the blocks of a group, shared ones once.
func (m *Manager) distinct(g *Group) int {
	m.newMark()
	n := 0
	for i := range g.Seqs {
		for _, id := range g.Seqs[i].table {
			if m.moved[id].mark != m.mark {
				m.moved[id].mark = m.mark
				n++
			}
		}
	}
	return n
}

// newMark makes all of moved unknown.
func (m *Manager) newMark() {
	if m.mark++; m.mark == 0 {
		clear(m.moved)
		m.mark = 1
	}
}

// SwapOut moves a group to the CPU and appends the copies to be made to dst,
// one for each block: what is shared stays shared.
func (m *Manager) SwapOut(dst []block.Pair, g *Group) ([]block.Pair, error) {
	return m.swap(dst, g, &m.gpu, &m.cpu)
}

// SwapIn is SwapOut in the other direction.
func (m *Manager) SwapIn(dst []block.Pair, g *Group) ([]block.Pair, error) {
	return m.swap(dst, g, &m.cpu, &m.gpu)
}

func (m *Manager) swap(dst []block.Pair, g *Group, from, to *block.Device) ([]block.Pair, error) {
	if m.deviceOf(g) != from {
		return dst, fmt.Errorf("%w: it is swapped out: %t", ErrGroup, g.swapped)
	}
	if n := m.distinct(g); n > to.NumFree() {
		return dst, fmt.Errorf("%w: %d needed for a swap, %d free", ErrNoFreeBlocks, n, to.NumFree())
	}
	m.newMark()
	entries := 0
	for i := range g.Seqs {
		table := g.Seqs[i].table
		entries += len(table)
		for j, id := range table {
			seen := &m.moved[id]
			if seen.mark != m.mark {
				*seen = move{m.mark, to.Take()}
				dst = append(dst, block.Pair{Src: id, Dst: seen.to})
			} else {
				to.Ref(seen.to)
			}
			table[j] = seen.to
			from.Drop(id)
		}
	}
	g.swapped = to == &m.cpu
	if g.swapped {
		entries = -entries
	}
	m.logical += entries
	return dst, nil
}
