package matrix

import (
	"errors"
	"fmt"
	"unsafe"
)

// ErrShape is wrapped when a matrix cannot be made.
var ErrShape = errors.New("bad matrix")

// Type is how weights are kept.
type Type uint8

const (
	F32 Type = iota
	F16
	BF16
	Int8 // blocks of 8-bit integers times a scale
	Int4 // blocks of 4-bit integers times a scale, plus a minimum

	// The same, multiplied by activations that are rounded to 8 bits in blocks of 32.
	W8A8    // 8-bit integers times a scale
	W4A8    // 4-bit integers less 8, times a scale
	W4A8Min // 4-bit integers times a scale, plus a minimum
)

func (t Type) String() string {
	if int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

var names = [...]string{"f32", "f16", "bf16", "int8", "int4", "w8a8", "w4a8", "w4a8 with minima"}

// Panel is the number of outputs that are interleaved, and the unit in which work can be
// split.
const Panel = 64

// slab is the number of k that are decoded at a time: 96 × 64 × 4 bytes stay in the first cache,
// beside the values of a group of rows, while all rows are multiplied by them.
const slab = 96

// askedFor is the number of bytes of the next weights that a tile prefetches with each
// k.
const askedFor = 64

// A Matrix maps rows of In values to rows of Out values. It is made of panels of
// 64 outputs; the last one is filled up with zeros.
//
// In a panel of F32, F16 and BF16 the 64 weights of k = 0 come first, then those
// of k = 1. Panels of Int8 and Int4 consist of blocks of Block k: 64 scales in
// F16, for Int4 64 minima in F16, and the integers, two k to a byte for Int4 with the
// smaller k in the low half. Blocks of the types that round activations are described at place.
type Matrix struct {
	Type    Type
	Out, In int
	Block   int // k that share a scale; 0 if there are none

	slices     int // of the inputs, each with a sum for itself: 1, 2 or 4
	panelBytes int
	data       []byte
}

// New makes a matrix of zeros in the arena's memory. block is 0 for types without scales, else 16, 32
// or another even divisor of 96 that divides in. Types that round activations need 32, or 16 for W8A8, and
// in a multiple of 32.
func (a *Arena) New(t Type, out, in, block int) (*Matrix, error) {
	m, err := shaped(t, out, in, block)
	if err != nil {
		return nil, err
	}
	m.data, err = a.take(m.Panels() * m.panelBytes)
	return m, err
}

func shaped(t Type, out, in, block int) (*Matrix, error) {
	m := &Matrix{Type: t, Out: out, In: in, Block: block}
	if out < 1 || in < 1 {
		return nil, fmt.Errorf("%w: %d × %d", ErrShape, out, in)
	}
	scaled := t == Int8 || t == Int4
	if scaled && (block < 2 || block%2 != 0 || slab%block != 0 || in%block != 0) || !scaled && !t.rounds() && block != 0 ||
		t.rounds() && (block != 32 && (block != 16 || t != W8A8) || in%inputBlock != 0) {
		return nil, fmt.Errorf("%w: %v of %d inputs in blocks of %d", ErrShape, t, in, block)
	}
	m.panelBytes = m.bytesOf(in)
	return m, nil
}

// Unit is the number of inputs of the matrix that cannot be divided: those of a block, of weights or of rounded
// activations.
func (m *Matrix) Unit() int {
	if m.Type.rounds() {
		return inputBlock
	}
	return max(1, m.Block)
}

// Slices is the number of sums of which a product can be made: 4, 2 or 1, as its inputs can be divided into whole
// units.
func Slices(in, unit int) int {
	for _, n := range []int{4, 2} {
		if in%(n*unit) == 0 {
			return n
		}
	}
	return 1
}

// Slice has each product computed as a tree of sums over n slices of the inputs: 1, 2
// or 4. Two matrices of half the inputs and half the slices each then have results
// whose sum is that of the whole to the bit.
func (m *Matrix) Slice(n int) error {
	if n != 1 && n != 2 && n != 4 || m.In%(n*m.Unit()) != 0 {
		return fmt.Errorf("%w: %d slices of %d inputs in blocks of %d", ErrShape, n, m.In, m.Unit())
	}
	m.slices = n
	return nil
}

// Panels is the number of panels.
func (m *Matrix) Panels() int { return (m.Out + Panel - 1) / Panel }

// Bytes is the size of the packed weights.
func (m *Matrix) Bytes() int { return len(m.data) }

// Data is the packed weights themselves, for those who measure how fast they can be read.
func (m *Matrix) Data() []byte { return m.data }

// bytesOf is what k inputs of a panel take.
func (m *Matrix) bytesOf(k int) int {
	switch m.Type {
	case F32:
		return k * Panel * 4
	case Int8, W8A8:
		return k / m.Block * Panel * (2 + m.Block)
	case Int4, W4A8Min:
		return k / m.Block * Panel * (4 + m.Block/2)
	case W4A8:
		return k / m.Block * Panel * (2 + m.Block/2)
	}
	return k * Panel * 2
}

func (m *Matrix) panel(p int) *byte { return &m.data[p*m.panelBytes] }

// halves and floats see the bytes of a panel as what they are.
func (m *Matrix) halves(p int) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(m.panel(p))), m.panelBytes/2)
}

func (m *Matrix) floats(p int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(m.panel(p))), m.panelBytes/4)
}
