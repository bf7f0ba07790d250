package matrix

import (
	"errors"
	"fmt"
	"math"
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

	Int8Min // blocks of 8-bit integers times a scale, plus a minimum

	// Scales and minima are a number of each 64 inputs times an integer of each block.
	Int8K    // 8-bit integers times a scale
	Int8KMin // 8-bit integers times a scale, plus a minimum
	Int4K    // 4-bit integers times a scale, plus a minimum

	Int4F // Int4 with scales and minima in F32
	E4M3  // blocks of 8-bit numbers with 4 bits of exponent and 3 of fraction, times a scale below 256

	NL4 // blocks of 4-bit places in a table of numbers, times a scale
	FP4 // the same with the numbers of E2M1, times 2

	// The same, multiplied by activations that are rounded to 8 bits in blocks of 32.
	W8A8    // 8-bit integers times a scale
	W4A8    // 4-bit integers less 8, times a scale
	W4A8Min // 4-bit integers times a scale, plus a minimum
	W5A8    // 5-bit integers less 16, times a scale
	W5A8Min // 5-bit integers times a scale, plus a minimum
	W6A8    // 6-bit integers less 32, times a scale
	NL4A8   // the numbers of NL4, times a scale
	FP4A8   // the numbers of FP4, times a scale

	W16A16 // BF16, multiplied by activations that are rounded to BF16
)

func (t Type) String() string {
	if int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

var names = [...]string{
	"f32", "f16", "bf16", "int8", "int4", "int8 with minima", "int8 k", "int8 k with minima", "int4 k", "int4 f", "e4m3",
	"nl4", "fp4", "w8a8", "w4a8", "w4a8 with minima", "w5a8", "w5a8 with minima", "w6a8", "nl4 a8", "fp4 a8", "w16a16",
}

// Panel is the number of outputs that are interleaved, and the unit in which work can be
// split.
const Panel = 64

// slab is the most k that are decoded at a time: 96 × 64 × 4 bytes stay in the first cache,
// beside the values of a group of rows, while all rows are multiplied by them.
const slab = 96

// unit is the number of k that share a number in types whose scales are products.
const unit = 64

// units reports whether scales are products.
func (t Type) units() bool { return t == Int8K || t == Int8KMin || t == Int4K }

// single reports whether scales and minima are F32, not F16.
func (t Type) single() bool { return t == Int4F || t.Table() != nil && !t.rounds() }

// least reports whether weights have minima.
func (t Type) least() bool {
	switch t {
	case Int4, Int4F, Int8Min, Int4K, Int8KMin, W4A8Min, W5A8Min:
		return true
	}
	return false
}

// bits is the size of an integer, 0 for floats.
func (t Type) bits() int {
	switch t {
	case Int8, Int8Min, Int8K, Int8KMin, E4M3, W8A8:
		return 8
	case W6A8:
		return 6
	case W5A8, W5A8Min:
		return 5
	case Int4, Int4K, Int4F, NL4, FP4, W4A8, W4A8Min, NL4A8, FP4A8:
		return 4
	}
	return 0
}

// tables has the numbers of types whose integers are places of numbers.
var tables = [...][]float32{E4M3: e4m3(), NL4: nl4, FP4: fp4, NL4A8: nl4, FP4A8: fp4}

var (
	nl4 = []float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	fp4 = []float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
)

// e4m3 has the numbers of 8 bits; there are no infinities, and NaN, which no weight is, are like numbers.
func e4m3() []float32 {
	all := make([]float32, 256)
	for b := range all {
		all[b] = math.Float32frombits(uint32(b&0x80)<<24|uint32(b&0x7f)<<20) * (1 << 120)
	}
	return all
}

// Table has the numbers of which the integers of E4M3, NL4, FP4, NL4A8 and FP4A8 are places; it is nil for other types.
func (t Type) Table() []float32 {
	if int(t) < len(tables) {
		return tables[t]
	}
	return nil
}

// askedFor is the number of bytes of the next weights that a tile prefetches with each
// k.
const askedFor = 64

// A Matrix maps rows of In values to rows of Out values. It is made of panels of
// 64 outputs; the last one is filled up with zeros.
//
// In a panel of F32, F16 and BF16 the 64 weights of k = 0 come first, then those
// of k = 1. Panels of Int8 and Int4 consist of blocks of Block k: 64 scales in
// F16, for types with minima 64 minima in F16, and the integers, two k to a byte for those of 4 bits, with the
// smaller k in the low half. Those of Int4F, E4M3, NL4 and FP4 have scales and minima in F32. Panels of Int8K,
// Int8KMin and Int4K consist of units of 64 k: 64 numbers of scales in F16, and of minima, and blocks, each of 64
// factors of 8 bits, and for minima as many, and the integers. Blocks of the types that round activations to 8 bits are
// described at place, weights of W16A16 at half.
type Matrix struct {
	Type    Type
	Out, In int
	Block   int // k that share a scale; 0 if there are none

	pairs      bool // W16A16 as AVX512_BF16 reads it: the weights of two k side by side
	slices     int  // of the inputs, each with a sum for itself: 1, 2 or 4
	panelBytes int
	data       []byte
}

// New makes a matrix of zeros in the arena's memory. block is 0 for types without scales, else 16, 32
// or another even divisor of 96 that divides in. Types that round activations to 8 bits need 32, or 16 if their weights
// do not have 5 bits, and in a multiple of 32. W16A16 needs an even in.
func (a *Arena) New(t Type, out, in, block int) (*Matrix, error) {
	m, err := shaped(t, out, in, block)
	if err != nil {
		return nil, err
	}
	m.data, err = a.take(m.Panels() * m.panelBytes)
	return m, err
}

func shaped(t Type, out, in, block int) (*Matrix, error) {
	m := &Matrix{Type: t, Out: out, In: in, Block: block, pairs: t == W16A16 && paired()}
	if out < 1 || in < 1 {
		return nil, fmt.Errorf("%w: %d × %d", ErrShape, out, in)
	}
	ok := block == 0 || t.bits() != 0 && !t.rounds() && block > 1 && block%2 == 0 && slab%block == 0 && in%block == 0
	switch {
	case t.units():
		ok = block > 1 && block%2 == 0 && unit%block == 0 && in%unit == 0
	case t.rounds():
		ok = (block == 32 || block == 16 && t.bits() != 5) && in%inputBlock == 0
	case t.bits() != 0 && block == 0:
		ok = false
	case t == W16A16:
		ok = ok && in%2 == 0
	}
	if !ok {
		return nil, fmt.Errorf("%w: %v of %d inputs in blocks of %d", ErrShape, t, in, block)
	}
	m.panelBytes = m.bytesOf(in)
	return m, nil
}

// Unit is the number of inputs of the matrix that cannot be divided: those of a block, of weights or of rounded
// activations, or a pair.
func (m *Matrix) Unit() int {
	switch {
	case m.Type.rounds():
		return inputBlock
	case m.Type.units():
		return unit
	case m.Type == W16A16:
		return 2
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

// Size is about what the packed weights of a matrix take.
func Size(t Type, out, in, block int) int {
	m := &Matrix{Type: t, Out: out, Block: block}
	return m.bytesOf(in) * out / Panel
}

// bytesOf is what k inputs of a panel take.
func (m *Matrix) bytesOf(k int) int {
	switch m.Type {
	case F32:
		return k * Panel * 4
	case F16, BF16, W16A16:
		return k * Panel * 2
	}
	integers := k * Panel * m.Type.bits() / 8
	if m.Type.units() {
		return integers + k/unit*m.Type.scaleBytes() + k/m.Block*m.Type.factorBytes()
	}
	return integers + k/m.Block*m.Type.scaleBytes()
}

// scaleBytes is what the scales and minima of a block of a panel take, or of a unit where scales are products.
func (t Type) scaleBytes() int {
	bytes := Panel * 2
	if t.single() {
		bytes *= 2
	}
	if t.least() {
		bytes *= 2
	}
	return bytes
}

// factorBytes is what the factors of scales and minima of a block of a panel take.
func (t Type) factorBytes() int {
	if t.least() {
		return Panel * 2
	}
	return Panel
}

// kernels is the type whose kernels read the weights: without AVX512_BF16, those of W16A16 are packed as BF16.
func (m *Matrix) kernels() Type {
	if m.Type == W16A16 && !m.pairs {
		return BF16
	}
	return m.Type
}

// slab is how many k are decoded or multiplied at a time.
func (m *Matrix) slab() int { return slab / m.Unit() * m.Unit() }

func (m *Matrix) panel(p int) *byte { return &m.data[p*m.panelBytes] }

// halves and floats see the bytes of a panel as what they are.
func (m *Matrix) halves(p int) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(m.panel(p))), m.panelBytes/2)
}

func (m *Matrix) floats(p int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(m.panel(p))), m.panelBytes/4)
}
