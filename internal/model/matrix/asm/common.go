package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The types without scales.
const (
	f32  = "F32"
	f16  = "F16"
	bf16 = "BF16"
)

// sizes are the bytes of a weight.
var sizes = map[string]int{f32: 4, f16: 2, bf16: 2}

// panel is how many outputs are interleaved: panel values of k = 0, then of
// k = 1, and so on.
const panel = 64

// A strided is a pointer to rows that lie stride bytes apart.
type strided struct {
	base, stride, three, five Register
}

// loadStrided reads a pointer and a stride from the arguments. Multiples of the
// stride that an address cannot scale by are kept beside it.
func loadStrided(pointer, stride string, rows int) strided {
	s := strided{base: Load(Param(pointer), GP64())}
	if rows == 1 {
		return s
	}
	s.stride = Load(Param(stride), GP64())
	if rows > 3 {
		three := GP64()
		LEAQ(Mem{Base: s.stride, Index: s.stride, Scale: 2}, three)
		s.three = three
	}
	if rows > 5 {
		five := GP64()
		LEAQ(Mem{Base: s.stride, Index: s.stride, Scale: 4}, five)
		s.five = five
	}
	return s
}

// at is the address of byte offset in a row.
func (s *strided) at(row, offset int) Mem {
	m := Mem{Base: s.base, Disp: offset}
	switch row {
	case 0:
	case 1, 2, 4:
		m.Index, m.Scale = s.stride, uint8(row)
	case 3:
		m.Index, m.Scale = s.three, 1
	case 5:
		m.Index, m.Scale = s.five, 1
	}
	return m
}

// loop runs body while count is not 0; body is entered at least once.
func loop(label string, count Register, step int, body func()) {
	Label(label)
	body()
	SUBQ(U32(uint32(step)), count)
	JNZ(LabelRef(label))
}
