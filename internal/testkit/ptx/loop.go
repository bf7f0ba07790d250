package ptx

import (
	"maps"
	"slices"
	"strings"
)

// Counts are what the runs of a kernel or of a loop have executed. An instruction counts once for a warp.
type Counts struct {
	Instructions, MMA int
	// Moves is the number of moves that NVIDIA's assembler has to add before mma, whose operands must be in consecutive
	// registers. If registers of an operand come from loads of vectors, but not all from one load and in its order, each
	// register of the operand needs a move.
	Moves                          int
	GlobalBytes, SharedBytes       int
	ExcessSectors, ExcessBankTurns int // beyond the fewest for as many bytes; see traffic
}

// A Loop is a loop of a kernel, with what its runs have executed.
type Loop struct {
	Counts
	Steps int // how often a warp has begun its body
}

// Total returns what all runs have executed.
func (k *Kernel) Total() Counts {
	all := make([]int, len(k.code))
	for i := range all {
		all[i] = i
	}
	return k.count(all)
}

// Unexecuted returns the instructions that no run of this kernel or of others has executed, and the number of all.
// The others are the same kernel, compiled again.
func (k *Kernel) Unexecuted(others ...*Kernel) (lines []string, all int) {
	for i := range k.code {
		ran := func(k *Kernel) bool { return k.counted[i].executed > 0 }
		if !ran(k) && !slices.ContainsFunc(others, ran) {
			lines = append(lines, k.code[i].text)
		}
	}
	return lines, len(k.code)
}

// MainLoop returns the loop that has executed the most mma, of those that have no smaller loop with mma in them. It
// has no steps if there is none.
func (k *Kernel) MainLoop() Loop {
	var best Loop
	loops := k.loops()
	for _, head := range slices.Sorted(maps.Keys(loops)) {
		body := loops[head]
		inner := slices.ContainsFunc(body, func(i int) bool {
			return i != head && loops[i] != nil && slices.ContainsFunc(loops[i], k.multiplies)
		})
		if inner {
			continue
		}
		if counts := k.count(body); counts.MMA > best.MMA {
			best = Loop{counts, k.counted[head].executed}
		}
	}
	return best
}

func (k *Kernel) multiplies(i int) bool { return strings.HasPrefix(k.code[i].opcode, "mma.") }

func (k *Kernel) count(instructions []int) Counts {
	var sum Counts
	sources := k.sources()
	for _, i := range instructions {
		c := k.counted[i]
		sum.Instructions += c.executed
		sum.GlobalBytes += c.global.bytes
		sum.SharedBytes += c.shared.bytes
		sum.ExcessSectors += c.global.excess
		sum.ExcessBankTurns += c.shared.excess
		if k.multiplies(i) {
			sum.MMA += c.executed
			a, b := k.code[i].reads[0].registers, k.code[i].reads[1].registers
			sum.Moves += c.executed * (sources.moves(a) + sources.moves(b))
		}
	}
	return sum
}

// loops returns the instructions of each loop, by its first instruction.
func (k *Kernel) loops() map[int][]int {
	before := make([][]int, len(k.code))
	for i := range k.code {
		for _, next := range k.next(i) {
			before[next] = append(before[next], i)
		}
	}
	loops := map[int][]int{}
	for _, edge := range k.backEdges() {
		head, seen := edge[1], map[int]bool{edge[1]: true}
		for _, i := range loops[head] {
			seen[i] = true
		}
		for open := []int{edge[0]}; len(open) > 0; {
			i := open[len(open)-1]
			open = open[:len(open)-1]
			if !seen[i] {
				seen[i] = true
				open = append(open, before[i]...)
			}
		}
		loops[head] = loops[head][:0]
		for i := range k.code {
			if seen[i] {
				loops[head] = append(loops[head], i)
			}
		}
	}
	return loops
}

// next returns the instructions that may run after one.
func (k *Kernel) next(i int) []int {
	line := &k.code[i]
	var all []int
	if line.flow == branch {
		all = append(all, line.target)
	}
	if i+1 < len(k.code) && (line.flow != branch && line.flow != exit || line.guard >= 0) {
		all = append(all, i+1)
	}
	return all
}

// backEdges finds the edges from an instruction to one on the path to it, by depth-first search. Each closes a loop.
func (k *Kernel) backEdges() (edges [][2]int) {
	const unseen, onTheWay, left = 0, 1, 2
	state := make([]int, len(k.code))
	type visit struct {
		instruction int
		next        []int
	}
	state[0] = onTheWay
	for way := []visit{{0, k.next(0)}}; len(way) > 0; {
		v := &way[len(way)-1]
		if len(v.next) == 0 {
			state[v.instruction] = left
			way = way[:len(way)-1]
			continue
		}
		next := v.next[0]
		v.next = v.next[1:]
		switch state[next] {
		case onTheWay:
			edges = append(edges, [2]int{v.instruction, next})
		case unseen:
			state[next] = onTheWay
			way = append(way, visit{next, k.next(next)})
		}
	}
	return edges
}

// sources are the instructions that write each register.
type sources struct {
	code    []instruction
	writers map[int][]int
}

func (k *Kernel) sources() sources {
	s := sources{k.code, map[int][]int{}}
	for i := range k.code {
		for _, r := range k.code[i].writes {
			s.writers[r] = append(s.writers[r], i)
		}
	}
	return s
}

// An element is a place in the vector that an instruction loads.
type element struct{ instruction, place int }

// elements returns the elements of vectors that a register can contain, loaded or copied by mov.
func (s sources) elements(r int, seen map[int]bool) (all []element) {
	if seen[r] {
		return nil
	}
	seen[r] = true
	for _, i := range s.writers[r] {
		line := &s.code[i]
		switch {
		case strings.HasPrefix(line.opcode, "mov.") && len(line.writes) == 1 && len(line.reads[0].registers) == 1:
			all = append(all, s.elements(line.reads[0].registers[0], seen)...)
		case len(line.writes) > 1 && (strings.HasPrefix(line.opcode, "ld.") || strings.HasPrefix(line.opcode, "ldmatrix.")):
			all = append(all, element{i, slices.Index(line.writes, r)})
		}
	}
	return all
}

// moves returns how many registers of an operand have to be moved.
func (s sources) moves(operand []int) int {
	first := s.elements(operand[0], map[int]bool{})
	for place, r := range operand {
		for i, e := range s.elements(r, map[int]bool{}) {
			inRow := i < len(first) && e.instruction == first[i].instruction && e.place == first[i].place+place && first[i].place%len(operand) == 0
			if !inRow {
				return len(operand)
			}
		}
	}
	return 0
}
