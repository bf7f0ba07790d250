package ptx

import (
	"fmt"
	"math/bits"
	"slices"
)

const everyLane = 0xffffffff

// lanes is the value of a register in each lane of a warp. An operation reads as many bits as its type has.
type lanes [32]uint64

// A warp is 32 threads.
type warp struct {
	block     *block
	first     int // its first thread
	registers []lanes
	groups    []group // of lanes that have not returned, by the instruction that they execute next
	live      uint32  // the lanes of all groups
	copies    [32]copies
	counter   *counter // of the instruction that runs
}

// A group is the lanes that execute the same instruction next.
type group struct {
	next int
	mask uint32
}

// specials are the special registers, which identify a thread. A function returns the register's value for a thread.
var specials = map[string]func(b *block, thread int) int{
	"%tid.x":    func(_ *block, thread int) int { return thread },
	"%ntid.x":   func(b *block, _ int) int { return b.launch.Threads },
	"%ctaid.x":  func(b *block, _ int) int { return b.index[0] },
	"%ctaid.y":  func(b *block, _ int) int { return b.index[1] },
	"%ctaid.z":  func(b *block, _ int) int { return b.index[2] },
	"%nctaid.x": func(b *block, _ int) int { return b.launch.Grid[0] },
	"%nctaid.y": func(b *block, _ int) int { return b.launch.Grid[1] },
	"%nctaid.z": func(b *block, _ int) int { return b.launch.Grid[2] },
}

func newWarp(b *block, first int) *warp {
	w := &warp{block: b, first: first, registers: make([]lanes, b.kernel.registers), groups: []group{{0, everyLane}}, live: everyLane}
	for i := range w.registers {
		w.registers[i].fill(^uint64(0))
	}
	for x, r := range b.kernel.constants {
		w.registers[r].fill(x)
	}
	for name, r := range b.kernel.specials {
		for lane := range w.registers[r] {
			w.registers[r][lane] = uint64(specials[name](b, first+lane))
		}
	}
	return w
}

func (l *lanes) fill(x uint64) {
	for i := range l {
		l[i] = x
	}
}

// run executes the warp until it has come to a barrier of the block or has returned.
func (w *warp) run() error {
	code := w.block.kernel.code
	for len(w.groups) > 0 {
		i, err := w.ready()
		if err != nil {
			return err
		}
		line := &code[w.groups[i].next]
		w.counter = &w.block.kernel.counted[w.groups[i].next]
		w.counter.executed++
		mask := w.groups[i].mask
		if line.guard >= 0 {
			mask &= w.lanesWith(line.guard, line.negate)
		}
		w.groups[i].next++
		switch {
		case line.flow == barrier:
			return nil
		case line.flow == branch:
			w.branch(i, mask, line.target)
		case line.flow == exit:
			err = w.exit(i, mask)
		case mask != 0:
			err = line.run(w, mask)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", line.text, err)
		}
		if len(w.groups) > 1 {
			w.meet()
		}
	}
	return nil
}

// ready returns the group that runs next: the one with the lowest instruction. A group at an instruction of the whole
// warp runs only if it has all lanes; at a barrier of the block, all that have not returned.
func (w *warp) ready() (int, error) {
	code := w.block.kernel.code
	for i, g := range w.groups {
		if g.next >= len(code) {
			return 0, fmt.Errorf("thread %d runs past the end", w.first+bits.TrailingZeros32(g.mask))
		}
		line := &code[g.next]
		if line.flow != together && line.flow != barrier {
			return i, nil
		}
		mask := g.mask
		if line.guard >= 0 {
			mask &= w.lanesWith(line.guard, line.negate)
		}
		if mask == everyLane || line.flow == barrier && mask == w.live {
			return i, nil
		}
	}
	g := w.groups[0]
	return 0, fmt.Errorf("thread %d waits in %s: %d of 32 lanes have come, the others have returned or wait elsewhere",
		w.first+bits.TrailingZeros32(g.mask), code[g.next].text, bits.OnesCount32(g.mask))
}

// lanesWith returns the lanes in which a predicate is true, or false.
func (w *warp) lanesWith(predicate int, negate bool) uint32 {
	var mask uint32
	for i, x := range w.registers[predicate] {
		mask |= uint32(x&1) << i
	}
	if negate {
		return ^mask
	}
	return mask
}

// branch moves the lanes of a mask from a group to the target.
func (w *warp) branch(i int, mask uint32, target int) {
	switch mask {
	case 0:
	case w.groups[i].mask:
		w.groups[i].next = target
	default:
		w.groups[i].mask &^= mask
		w.groups = append(w.groups, group{target, mask})
	}
}

// exit removes the lanes of a mask, which return.
func (w *warp) exit(i int, mask uint32) error {
	for lane := range w.copies {
		if mask>>lane&1 != 0 && w.copies[lane].underWay() {
			return fmt.Errorf("thread %d returns without waiting for its cp.async", w.first+lane)
		}
	}
	w.live &^= mask
	if w.groups[i].mask &^= mask; w.groups[i].mask == 0 {
		w.groups = slices.Delete(w.groups, i, i+1)
	}
	return nil
}

// meet sorts the groups and unites those that have come to the same instruction.
func (w *warp) meet() {
	slices.SortFunc(w.groups, func(a, b group) int { return a.next - b.next })
	for i := len(w.groups) - 1; i > 0; i-- {
		if w.groups[i].next == w.groups[i-1].next {
			w.groups[i-1].mask |= w.groups[i].mask
			w.groups = slices.Delete(w.groups, i, i+1)
		}
	}
}

// A block is the threads that share memory.
type block struct {
	kernel     *Kernel
	launch     Launch
	memory     *memory
	parameters []byte
	index      [3]int
	shared     []byte
}

// run runs the warps in turns, each until the next barrier.
func (b *block) run() error {
	b.shared = make([]byte, b.kernel.declared+b.launch.Shared)
	for i := range b.shared {
		b.shared[i] = 0xff
	}
	var warps []*warp
	for first := 0; first < b.launch.Threads; first += 32 {
		warps = append(warps, newWarp(b, first))
	}
	if b.launch.Descending {
		slices.Reverse(warps)
	}
	for len(warps) > 0 {
		for _, w := range warps {
			if err := w.run(); err != nil {
				return err
			}
		}
		warps = slices.DeleteFunc(warps, func(w *warp) bool { return len(w.groups) == 0 })
	}
	return nil
}
