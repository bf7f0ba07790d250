package compare

import (
	"fmt"
	"slices"

	"llmmemory/internal/homework/course"
	"llmmemory/internal/homework/course/trace"
)

// writeOutside returns the difference for a write after the end of the allocation at address, which has size bytes. The
// first byte that was written is n bytes after the end, and b is its new value. The message names this allocation or
// the next one, whichever is nearer.
func (p *player) writeOutside(address, size, n uint64, b byte) *Difference {
	i, _ := slices.BinarySearch(p.ordered, address+size+n)
	for i < len(p.ordered) && p.live[p.ordered[i]] == 0 {
		i++
	}
	place := fmt.Sprintf("byte %d after %s", n+1, p.allocation(address, int64(size+n)))
	if i < len(p.ordered) {
		if before := p.ordered[i] - (address + size + n); before <= n {
			place = fmt.Sprintf("byte %d before %s", before, p.allocation(p.ordered[i], -int64(before)))
		}
	}
	d := differs(Heap, place, "not written", fmt.Sprintf("%#02x", b))
	d.Shape = "byte" // wherever it is
	return d
}

// allocation names the allocation at an address. offset is the distance from there to a byte before or after the
// allocation. If the allocation is an array, the name also says which element the byte would belong to if the array
// were longer, such as ref_count[-1].
func (p *player) allocation(address uint64, offset int64) string {
	for engine := range p.engines {
		for _, c := range p.going(trace.Op{Kind: trace.Destroy, Engine: engine}) {
			if c.address != address {
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
	return fmt.Sprintf("an allocation of %d bytes", p.live[address])
}

func (c part) array() (name string, size int64) {
	switch {
	case c.purpose == theCounts:
		return "ref_count", 4
	case c.purpose == theL1:
		return "block_table", 8
	case c.purpose < course.L1Size:
		return fmt.Sprintf("block_table[%d]", c.purpose), 4
	}
	return "", 0
}
