// Package device is the pool of physical blocks of one device. It serves vLLM V0 and the system of the PagedAttention
// paper. The pool has reference counts and a stack of free blocks. The package also has Tables and Watermark for the
// block managers of both systems.
//
// The rules of counting are in package block. The pool of vLLM V1, with its queue of free blocks and its prefix cache,
// is package llmmemory/internal/scheduling/vllm/v1/pool.
package device

import (
	"fmt"
	"iter"
	"slices"

	"llmmemory/internal/block"
)

// A Pair says that the contents of block Src must be copied to block Dst.
type Pair struct{ Src, Dst int32 }

// A Device manages the blocks of one memory. Their ids are consecutive. It counts the references to each block and keeps
// a stack of free blocks, so Take returns the block that was freed last.
type Device struct {
	first  int32
	counts []int32
	free   []int32 // top at the end
}

// Descending returns a device of n blocks whose ids start at first. Before any block is freed, Take returns the blocks
// in descending order of their ids.
func Descending(first int32, n int) Device {
	d := Device{first, make([]int32, n), make([]int32, n)}
	for i := range d.free {
		d.free[i] = first + int32(i)
	}
	return d
}

// Ascending is like Descending, but in ascending order.
func Ascending(first int32, n int) Device {
	d := Descending(first, n)
	slices.Reverse(d.free)
	return d
}

// Take removes a block from the stack and sets its count to 1, or returns block.None if the stack is empty.
func (d *Device) Take() int32 {
	top := len(d.free) - 1
	if top < 0 {
		return block.None
	}
	id := d.free[top]
	d.free = d.free[:top]
	d.counts[id-d.first] = 1
	return id
}

// Drop removes a reference to a block in use. If no reference is left, Drop puts the block on top of the stack and
// returns true.
func (d *Device) Drop(id int32) (freed bool) {
	if !d.Unref(id) {
		return false
	}
	d.free = append(d.free, id)
	return true
}

// Unref removes a reference to a block in use and reports whether no reference is left. Unlike Drop, it does not put
// the unused block on the stack.
func (d *Device) Unref(id int32) (unused bool) {
	if d.counts[id-d.first] <= 0 {
		panic(fmt.Sprintf("block %d is freed, but it is free already", id))
	}
	return block.Release(d.counts, id-d.first)
}

// Ref adds a reference to a block, and reports whether it is the block's only reference. The block must not be on
// the stack.
func (d *Device) Ref(id int32) (first bool) {
	d.counts[id-d.first]++
	return d.counts[id-d.first] == 1
}

// CopyOnWrite replaces a shared block in the table entry *slot by the block fresh, which Take has returned. It drops a
// reference to the shared block, and returns the copy that the caller must make.
func (d *Device) CopyOnWrite(slot *int32, fresh int32) Pair {
	local := *slot - d.first
	old := block.Assign(d.counts, &local, fresh-d.first)
	*slot = fresh
	return Pair{old + d.first, fresh}
}

// Shared reports whether a write to the block needs a copy.
func (d *Device) Shared(id int32) bool { return block.Shared(d.counts[id-d.first]) }

// Count is the number of references to the block.
func (d *Device) Count(id int32) int32 { return d.counts[id-d.first] }

// Counts returns the reference counts of all blocks. Block id has the index id - First(). The caller must not change
// them.
func (d *Device) Counts() []int32 { return d.counts }

// First is the lowest id.
func (d *Device) First() int32 { return d.first }

// Has reports whether the id is one of the device's.
func (d *Device) Has(id int32) bool { return uint(id-d.first) < uint(len(d.counts)) }

// NumFree is the number of blocks in the stack.
func (d *Device) NumFree() int { return len(d.free) }

// Free yields the free blocks in the order in which Take would return them.
func (d *Device) Free() iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for _, id := range slices.Backward(d.free) {
			if !yield(id) {
				return
			}
		}
	}
}

// Check returns an error if the stack has a block twice or a block with references. It also returns an error if the
// count of a block is not the number of its table entries. kept is the number of free blocks outside the stack. entries
// yields every mapped entry of every table.
func (d *Device) Check(kept int, entries iter.Seq[int32]) error {
	stacked := make([]bool, len(d.counts))
	for _, id := range d.free {
		switch {
		case !d.Has(id):
			return fmt.Errorf("%w: block %d of another device is in the stack", block.ErrNotConserved, id)
		case stacked[id-d.first]:
			return fmt.Errorf("%w: block %d is in the stack twice", block.ErrNotConserved, id)
		case d.Count(id) != 0:
			return fmt.Errorf("%w: block %d is in the stack with the count %d", block.ErrNotConserved, id, d.Count(id))
		}
		stacked[id-d.first] = true
	}
	local := func(yield func(int32) bool) {
		for id := range entries {
			if !yield(id - d.first) {
				return
			}
		}
	}
	return block.Conserved(d.counts, len(d.free)+kept, local)
}

// Clone is a copy that shares nothing.
func (d *Device) Clone() Device {
	return Device{d.first, slices.Clone(d.counts), slices.Clone(d.free)}
}

// Tables recycles the arrays of block tables.
type Tables struct{ spare [][]int32 }

// Take returns an empty table.
func (t *Tables) Take() []int32 {
	n := len(t.spare)
	if n == 0 {
		return nil
	}
	table := t.spare[n-1]
	t.spare = t.spare[:n-1]
	return table
}

// Give stores the array of a table, which a later Take may return. The caller must not use the table afterwards.
func (t *Tables) Give(table []int32) {
	if cap(table) > 0 {
		t.spare = append(t.spare, table[:0])
	}
}

// Watermark returns the number of blocks that must stay free when a request is admitted: the given part of the blocks,
// rounded down.
func Watermark(part float64, blocks int) int { return int(part * float64(blocks)) }
