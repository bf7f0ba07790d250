package paper

import (
	"fmt"

	"llmmemory/internal/scheduling/device"
)

// CanSwapOut reports whether the distinct blocks of a group fit on the CPU.
func (m *Manager) CanSwapOut(g *Group) bool { return m.distinct(g) <= m.cpu.NumFree() }

// CanSwapIn reports whether the GPU has enough free blocks above the watermark for the distinct blocks of a group and
// one more block for each of its sequences.
func (m *Manager) CanSwapIn(g *Group) bool {
	return m.gpu.NumFree()-(m.distinct(g)+g.running()) >= m.watermark
}

func (m *Manager) distinct(g *Group) int {
	m.newMark()
	n := 0
	for i := range g.Seqs {
		for _, id := range m.movable(g, i) {
			if m.moved[id].mark != m.mark {
				m.moved[id].mark = m.mark
				n++
			}
		}
	}
	return n
}

// movable returns the table of a sequence without the blocks of the prefix, which stay on the GPU.
func (m *Manager) movable(g *Group, i int) []int32 {
	table := g.Seqs[i].table
	if g.swapped || len(table) == 0 {
		return table
	}
	return table[len(m.prefix):]
}

func (m *Manager) newMark() {
	if m.mark++; m.mark == 0 {
		clear(m.moved)
		m.mark = 1
	}
}

// SwapOut moves the blocks of a group to the CPU, and appends to dst the copies that the caller must make. A shared
// block is copied once and stays shared.
func (m *Manager) SwapOut(dst []device.Pair, g *Group) ([]device.Pair, error) {
	return m.swap(dst, g, &m.gpu, &m.cpu)
}

// SwapIn moves the blocks of a group back to the GPU, and appends to dst the copies that the caller must make. A shared
// block is copied once and stays shared.
func (m *Manager) SwapIn(dst []device.Pair, g *Group) ([]device.Pair, error) {
	return m.swap(dst, g, &m.cpu, &m.gpu)
}

func (m *Manager) swap(dst []device.Pair, g *Group, source, target *device.Device) ([]device.Pair, error) {
	if m.deviceOf(g) != source {
		return dst, fmt.Errorf("%w: it is swapped out: %t", ErrGroup, g.swapped)
	}
	if n := m.distinct(g); n > target.NumFree() {
		return dst, fmt.Errorf("%w: %d needed for a swap, %d free", ErrNoFreeBlocks, n, target.NumFree())
	}
	m.newMark()
	entries := 0
	for i := range g.Seqs {
		table := m.movable(g, i)
		for j, id := range table {
			seen := &m.moved[id]
			if seen.mark != m.mark {
				*seen = move{m.mark, target.Take()}
				dst = append(dst, device.Pair{Src: id, Dst: seen.block})
			} else {
				target.Ref(seen.block)
			}
			table[j] = seen.block
			source.Drop(id)
		}
		entries += m.movePrefix(&g.Seqs[i], target)
	}
	g.swapped = target == &m.cpu
	if g.swapped {
		entries = -entries
	}
	m.logical += entries
	return dst, nil
}

// movePrefix removes the blocks of the shared prefix from a table that moves to the CPU, or adds them to a table that
// moves to the GPU. It returns the number of entries that the table has on the GPU, prefix included.
func (m *Manager) movePrefix(s *Seq, target *device.Device) int {
	if len(m.prefix) == 0 || len(s.table) == 0 {
		return len(s.table)
	}
	if target == &m.gpu {
		table := append(m.withPrefix(m.tables.Take()), s.table...)
		m.tables.Give(s.table)
		s.table = table
		return len(table)
	}
	entries := len(s.table)
	for _, id := range m.prefix {
		m.gpu.Drop(id)
	}
	s.table = append(s.table[:0], s.table[len(m.prefix):]...)
	return entries
}
