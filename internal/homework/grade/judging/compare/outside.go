package compare

import (
	"fmt"
	"slices"

	"llmmemory/internal/homework/course"
	"llmmemory/internal/homework/course/trace"
)

// outside returns the difference for a write after the end of the allocation at the address at. The write was n bytes
// after the end, and b is the byte that was written. The message names this allocation or the next one, whichever is
// nearer.
func (p *player) outside(at, size, n uint64, b byte) *Difference {
	i, _ := slices.BinarySearch(p.ordered, at+size+n)
	for i < len(p.ordered) && p.live[p.ordered[i]] == 0 {
		i++
	}
	place := fmt.Sprintf("byte %d after %s", n+1, p.allocation(at, int64(size+n)))
	if i < len(p.ordered) {
		if before := p.ordered[i] - (at + size + n); before <= n {
			place = fmt.Sprintf("byte %d before %s", before, p.allocation(p.ordered[i], -int64(before)))
		}
	}
	d := differs(Heap, place, "not written", fmt.Sprintf("%#02x", b))
	d.Shape = "byte" // wherever it is
	return d
}

// allocation names the allocation at an address. If the allocation is an array, the name includes the index of an
// element at the offset. There is no such element, because the offset is before the array or behind it.
func (p *player) allocation(at uint64, offset int64) string {
	for engine := range p.engines {
		for _, c := range p.going(trace.Op{Kind: trace.Destroy, Engine: engine}) {
			if c.at != at {
				continue
			}
			array, size := c.array()
			if array == "" {
				return c.String()
			}
			element := offset / size
			if offset < 0 {
				element = (offset+1)/size - 1
			}
			return fmt.Sprintf("%s, which would be %s[%d]", c, array, element)
		}
	}
	return fmt.Sprintf("an allocation of %d bytes", p.live[at])
}

func (c part) array() (name string, size int64) {
	switch {
	case c.what == theCounts:
		return "ref_count", 4
	case c.what == theL1:
		return "block_table", 8
	case c.what < course.L1Size:
		return fmt.Sprintf("block_table[%d]", c.what), 4
	}
	return "", 0
}
