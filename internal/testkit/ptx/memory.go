package ptx

import (
	"encoding/binary"
	"fmt"
)

// A space is a kind of memory. An address of the generic space is one of global memory or, from window on, of shared
// memory.
type space int

const (
	generic space = iota
	global
	sharedSpace
	param
)

const window = uint64(1) << 62

var spaces = map[string]space{"global": global, "shared": sharedSpace, "param": param}

// A memory is global memory.
type memory struct {
	areas []Area
	last  int // the area of the last access
}

func newMemory(areas []Area) *memory {
	return &memory{areas: areas}
}

// bytes returns the bytes at an address, or nil if no area contains them all.
func (m *memory) bytes(address uint64, size int) []byte {
	if m.last < len(m.areas) {
		if b := m.areas[m.last].bytes(address, size); b != nil {
			return b
		}
	}
	for i := range m.areas {
		if b := m.areas[i].bytes(address, size); b != nil {
			m.last = i
			return b
		}
	}
	return nil
}

func (a *Area) bytes(address uint64, size int) []byte {
	offset := address - a.Address
	if address < a.Address || offset > uint64(len(a.Bytes)) || uint64(len(a.Bytes))-offset < uint64(size) {
		return nil
	}
	return a.Bytes[offset : offset+uint64(size)]
}

// bytes returns memory of a lane.
func (w *warp) bytes(s space, lane int, address uint64, size int) ([]byte, error) {
	if address%uint64(size) != 0 {
		return nil, fmt.Errorf("thread %d: the address %#x is not a multiple of %d", w.first+lane, address, size)
	}
	if s == generic && address >= window {
		s, address = sharedSpace, address-window
	}
	var b []byte
	switch s {
	case sharedSpace:
		b = (&Area{Bytes: w.block.shared}).bytes(address, size)
	case param:
		b = (&Area{Bytes: w.block.parameters}).bytes(address, size)
	default:
		b = w.block.memory.bytes(address, size)
	}
	if b == nil {
		return nil, fmt.Errorf("thread %d accesses %d bytes at %#x, outside of memory", w.first+lane, size, address)
	}
	return b, nil
}

// access calls move for the lanes of a mask, with the memory at their addresses, and counts it.
func (w *warp) access(s space, mask uint32, address operand, size int, move func(lane int, memory []byte)) error {
	var addresses lanes
	for lane, base := range w.registers[address.registers[0]] {
		if mask>>lane&1 == 0 {
			continue
		}
		addresses[lane] = base + address.offset
		if s == sharedSpace { // whose addresses may be in registers of 32 bits
			addresses[lane] &= 0xffffffff
		}
		b, err := w.bytes(s, lane, addresses[lane], size)
		if err != nil {
			return err
		}
		move(lane, b)
	}
	if s == generic && addresses[trailing(mask)] >= window {
		s = sharedSpace
	}
	w.counter.moved(s, mask, &addresses, size)
	return nil
}

// load returns the operation that loads elements of a type to registers.
func load(s space, t scalar, target []int, source operand) operation {
	size := t.bits / 8
	return func(w *warp, mask uint32) error {
		return w.access(s, mask, source, size*len(target), func(lane int, memory []byte) {
			for i, r := range target {
				w.registers[r][lane] = t.value(read(memory[i*size:], size))
			}
		})
	}
}

// store returns the operation that stores registers.
func store(s space, t scalar, target operand, source []int) operation {
	size := t.bits / 8
	return func(w *warp, mask uint32) error {
		return w.access(s, mask, target, size*len(source), func(lane int, memory []byte) {
			for i, r := range source {
				write(memory[i*size:], size, w.registers[r][lane])
			}
		})
	}
}

func read(memory []byte, size int) uint64 {
	switch size {
	case 1:
		return uint64(memory[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(memory))
	case 4:
		return uint64(binary.LittleEndian.Uint32(memory))
	}
	return binary.LittleEndian.Uint64(memory)
}

func write(memory []byte, size int, x uint64) {
	switch size {
	case 1:
		memory[0] = byte(x)
	case 2:
		binary.LittleEndian.PutUint16(memory, uint16(x))
	case 4:
		binary.LittleEndian.PutUint32(memory, uint32(x))
	default:
		binary.LittleEndian.PutUint64(memory, x)
	}
}

// atomic returns the operation that replaces memory by f(memory, source), lane by lane, and sets target to the old values.
func atomic(s space, t scalar, target int, place operand, source int, f function) operation {
	size := t.bits / 8
	return func(w *warp, mask uint32) error {
		return w.access(s, mask, place, size, func(lane int, memory []byte) {
			before := read(memory, size)
			write(memory, size, f(before, w.registers[source][lane], 0))
			w.registers[target][lane] = before
		})
	}
}

// A transfer moves bytes to shared memory. The rest of target becomes 0.
type transfer struct {
	target, source []byte
}

// copies are those of a thread.
type copies struct {
	committed [][]transfer // groups, the oldest first
	open      []transfer   // not in a group yet
}

func (c *copies) underWay() bool {
	for _, g := range c.committed {
		if len(g) > 0 {
			return true
		}
	}
	return len(c.open) > 0
}

func (c *copies) commit() {
	c.committed = append(c.committed, c.open)
	c.open = nil
}

// wait completes the oldest groups, until at most left groups remain.
func (c *copies) wait(left int) {
	for len(c.committed) > left {
		for _, t := range c.committed[0] {
			clear(t.target)
			copy(t.target, t.source)
		}
		c.committed = c.committed[1:]
	}
}

// copyAsync is cp.async of 4, 8 or 16 bytes. The register count has the number of bytes that come from global memory. The
// others become 0.
func copyAsync(target, source operand, size, count int) operation {
	return func(w *warp, mask uint32) error {
		var reading uint32
		for lane := range 32 {
			n := w.registers[count][lane] & 0xffffffff
			if mask>>lane&1 != 0 && n > uint64(size) {
				return fmt.Errorf("thread %d copies %d bytes of %d", w.first+lane, n, size)
			}
			if mask>>lane&1 != 0 && n > 0 {
				reading |= 1 << lane
			}
		}
		var origins [32][]byte
		err := w.access(global, reading, source, size, func(lane int, source []byte) {
			origins[lane] = source[:w.registers[count][lane]&0xffffffff]
		})
		if err != nil {
			return err
		}
		return w.access(sharedSpace, mask, target, size, func(lane int, destination []byte) {
			for i := range destination {
				destination[i] = 0xff
			}
			w.copies[lane].open = append(w.copies[lane].open, transfer{destination, origins[lane]})
		})
	}
}
