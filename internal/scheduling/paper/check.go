package paper

import (
	"fmt"
	"iter"
	"slices"

	"llmmemory/internal/invariants"
	"llmmemory/internal/scheduling/device"
)

// Check returns an error if the reference counts or the free blocks of a device disagree with the tables. It also
// returns an error if a table does not cover all tokens of its sequence; only the last block, for a token just
// generated, may be missing.
// groups yields every group that has blocks.
func (m *Manager) Check(groups iter.Seq[*Group]) error {
	for _, d := range []*device.Device{&m.gpu, &m.cpu} {
		if err := d.Check(0, m.entries(d, groups)); err != nil {
			return fmt.Errorf("GPU: %t: %w", d == &m.gpu, err)
		}
	}
	logical := 0
	for g := range groups {
		for i := range g.Seqs {
			if err := m.checkTable(g, &g.Seqs[i]); err != nil {
				return err
			}
			if !g.swapped {
				logical += len(g.Seqs[i].table)
			}
		}
	}
	if logical != m.logical {
		return invariants.Broken("%d table entries are on the GPU, but %d are counted", logical, m.logical)
	}
	return nil
}

func (m *Manager) entries(d *device.Device, groups iter.Seq[*Group]) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		var ids []int32
		if d == &m.gpu {
			ids = append(ids, m.prefix...)
		}
		for g := range groups {
			for i := range g.Seqs {
				if m.deviceOf(g) == d {
					ids = append(ids, g.Seqs[i].table...)
				}
			}
		}
		slices.Values(ids)(yield)
	}
}

func (m *Manager) checkTable(g *Group, s *Seq) error {
	n := m.blocks(s.Len)
	if g.swapped {
		n -= len(m.prefix)
	} else if len(s.table) > 0 && !slices.Equal(s.table[:min(len(s.table), len(m.prefix))], m.prefix) {
		return invariants.Broken("a table on the GPU does not begin with the prefix")
	}
	if s.Finished && len(s.table) > 0 || len(s.table) > n || len(s.table) > 0 && len(s.table) < n-1 {
		return invariants.Broken("a sequence of %d tokens has %d blocks, finished: %t", s.Len, len(s.table), s.Finished)
	}
	return nil
}

// Check returns an error unless every block is in exactly one chunk. Each free chunk must be in the list for its size. Its
// buddy must not be a free chunk of the same size, unless this is the maximum size.
func (b *Buddy) Check() error {
	free := 0
	listed := map[int32]int{}
	for size, starts := range b.Lists() {
		for _, start := range starts {
			listed[start] = size
		}
	}
	start := int32(0)
	for int(start) < len(b.chunks) {
		c := b.chunks[start]
		k := max(c.free, c.used) - 1
		if (c.free > 0) == (c.used > 0) {
			return invariants.Broken("block %d begins a free chunk: %t, one in use: %t", start, c.free > 0, c.used > 0)
		}
		size := 1 << k
		if int(start)%size != 0 || int(start)+size > len(b.chunks) {
			return invariants.Broken("a chunk of %d blocks begins at %d of %d", size, start, len(b.chunks))
		}
		for i := start + 1; i < start+int32(size); i++ {
			if b.chunks[i].free > 0 || b.chunks[i].used > 0 {
				return invariants.Broken("block %d is inside the chunk of %d at %d, and begins one", i, size, start)
			}
		}
		if c.free > 0 {
			free += size
			if listed[start] != size {
				return invariants.Broken("the free chunk of %d at %d is in the list of %d", size, start, listed[start])
			}
			delete(listed, start)
			buddy := start ^ int32(size)
			if int(k) < len(b.lists)-1 && int(buddy) < len(b.chunks) && b.chunks[buddy].free == c.free {
				return invariants.Broken("the buddies of %d at %d and %d are both free", size, start, buddy)
			}
		}
		start += int32(size)
	}
	if free != b.free || len(listed) > 0 {
		return invariants.Broken("%d blocks are free, but %d are counted; %d listed chunks are not free", free, b.free, len(listed))
	}
	return nil
}
