package matrix

import (
	"errors"
	"fmt"
	"math"
	"unsafe"
)

// ErrShape is wrapped when a matrix cannot be made.
var ErrShape = errors.New("bad matrix")

// Type is a representation of weights.
type Type uint8

const (
	F32 Type = iota
	F16
	BF16
	Int8 // blocks of 8-bit integers times a scale
	Int4 // blocks of 4-bit integers times a scale, plus a minimum

	Int8Min // blocks of 8-bit integers times a scale, plus a minimum

	// The next three types divide the inputs into units of 64, and units into blocks. A unit has a scale and, if the type
	// has minima, a minimum. Each of its blocks has 8-bit integers, the factors. The scale of a block is the product of
	// the unit's scale and a factor. The minimum of a block is the product of the unit's minimum and another factor.
	Int8K    // 8-bit integers times a scale
	Int8KMin // 8-bit integers times a scale, plus a minimum
	Int4K    // 4-bit integers times a scale, plus a minimum

	Int4F // Int4 with scales and minima in F32
	E4M3  // blocks of 8-bit numbers (4 bits of exponent, 3 of fraction) times a scale below 256

	NL4 // blocks of 4-bit indices of a table of numbers, times a scale
	FP4 // the same with the numbers of E2M1, doubled

	// Products with the following types round activations to 8 bits, in blocks of 32.
	W8A8    // 8-bit integers times a scale
	W4A8    // 4-bit integers minus 8, times a scale
	W4A8Min // 4-bit integers times a scale, plus a minimum
	W5A8    // 5-bit integers minus 16, times a scale
	W5A8Min // 5-bit integers times a scale, plus a minimum
	W6A8    // 6-bit integers minus 32, times a scale
	NL4A8   // the numbers of NL4, times a scale
	FP4A8   // the numbers of FP4, times a scale

	W16A16 // BF16, multiplied by activations that are rounded to BF16
)

type kind struct {
	name    string
	bits    int       // of an integer, or 0 for floats
	minimum bool      // weights have minima
	offset  int32     // added to weights, because kernels for 8-bit activations need unsigned weights
	table   []float32 // the numbers whose indices the integers are, or nil
	single  bool      // scales and minima are F32, not F16
	units   bool      // scales and minima of blocks are products; see Int8K
	rounds  bool      // activations are rounded to 8 bits
}

var kinds = [...]kind{
	F32: {name: "f32"}, F16: {name: "f16"}, BF16: {name: "bf16"}, W16A16: {name: "w16a16"},
	Int8:     {name: "int8", bits: 8},
	Int4:     {name: "int4", bits: 4, minimum: true},
	Int8Min:  {name: "int8 with minima", bits: 8, minimum: true},
	Int8K:    {name: "int8 k", bits: 8, units: true},
	Int8KMin: {name: "int8 k with minima", bits: 8, minimum: true, units: true},
	Int4K:    {name: "int4 k", bits: 4, minimum: true, units: true},
	Int4F:    {name: "int4 f", bits: 4, minimum: true, single: true},
	E4M3:     {name: "e4m3", bits: 8, table: e4m3(), single: true},
	NL4:      {name: "nl4", bits: 4, table: nl4, single: true},
	FP4:      {name: "fp4", bits: 4, table: fp4, single: true},
	W8A8:     {name: "w8a8", bits: 8, offset: 128, rounds: true},
	W4A8:     {name: "w4a8", bits: 4, offset: 8, rounds: true},
	W4A8Min:  {name: "w4a8 with minima", bits: 4, minimum: true, rounds: true},
	W5A8:     {name: "w5a8", bits: 5, offset: 16, rounds: true},
	W5A8Min:  {name: "w5a8 with minima", bits: 5, minimum: true, rounds: true},
	W6A8:     {name: "w6a8", bits: 6, offset: 32, rounds: true},
	NL4A8:    {name: "nl4 a8", bits: 4, offset: 128, table: nl4, rounds: true},
	FP4A8:    {name: "fp4 a8", bits: 4, offset: 128, table: fp4, rounds: true},
}

func (t Type) String() string { return kinds[t].name }

func (t Type) bits() int { return kinds[t].bits }

func (t Type) hasMinimum() bool { return kinds[t].minimum }

func (t Type) units() bool { return kinds[t].units }

func (t Type) rounds() bool { return kinds[t].rounds }

// Table returns the table of numbers in which the weights' integers are indices, or nil if the type has no table.
func (t Type) Table() []float32 { return kinds[t].table }

var (
	nl4 = []float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	fp4 = []float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
)

// e4m3 returns the 256 numbers of E4M3, which has no infinities. The two encodings of NaN get numbers as well.
func e4m3() []float32 {
	all := make([]float32, 256)
	for b := range all {
		all[b] = math.Float32frombits(uint32(b&0x80)<<24|uint32(b&0x7f)<<20) * (1 << 120)
	}
	return all
}

// Panel is the number of outputs in a panel of a Matrix. The weights of these outputs are interleaved. Workers
// compute whole panels.
const Panel = 64

// slab is the largest number of inputs whose weights are decoded at a time. The decoded weights, 96 × 64 × 4 bytes,
// and the values of a group of rows stay in the first-level cache until all rows are multiplied.
const slab = 96

// unit is the number of inputs in a unit of the types Int8K, Int8KMin and Int4K.
const unit = 64

// prefetchBytes is the number of bytes of later weights that tile prefetches with each input.
const prefetchBytes = 64

// A Matrix maps rows of In values to rows of Out values. It consists of panels of 64 outputs; the last panel is padded
// with zeros. The type determines what a panel has, in this order:
//
//   - F32, F16, BF16: the 64 weights of input 0, then those of input 1, and so on.
//   - Int8, Int8Min, Int4: blocks of Block inputs. A block has 64 scales in F16, 64 minima in F16 if the type has
//     minima, and the integers.
//   - Int4F, E4M3, NL4, FP4: the same blocks, but with scales and minima in F32.
//   - Int8K, Int8KMin, Int4K: units of 64 inputs. A unit has 64 scales in F16, 64 minima in F16 if the type has minima,
//     and its blocks. A block has 64 integers by which the scales of the unit are multiplied, 64 integers by which the
//     minima are multiplied if the type has minima, and the integers of the weights.
//   - Types that round activations to 8 bits: blocks, which the comment of locate describes.
//   - W16A16: the 16-bit weights. The method half returns the index of each weight.
//
// Two 4-bit integers share a byte; the low half is for the input with the smaller index.
type Matrix struct {
	Type    Type
	Out, In int
	Block   int // k that share a scale, or 0 without scales

	pairs      bool // W16A16 for VDPBF16PS or tiles, with the weights of two k adjacent
	tiled      bool // products can use the tiles of AMX
	tiledRows  int  // the smallest number of rows for which they do; 0 for W16A16
	slices     int  // number of slices of the inputs: 1, 2 or 4; see Slice
	panelBytes int
	data       []byte
}

// New allocates a matrix of zeros. block is the number of inputs that share a scale. The type limits block and the
// number of inputs:
//
//   - F32, F16, BF16: block is 0.
//   - W16A16: block is 0. The number of inputs is even.
//   - Int8K, Int8KMin, Int4K: block is even and divides 64. The number of inputs is a multiple of 64.
//   - W5A8, W5A8Min: block is 32. The number of inputs is a multiple of 32.
//   - Other types that round activations to 8 bits: block is 16 or 32. The number of inputs is a multiple of 32.
//   - All other types: block is even, and divides 96 and the number of inputs.
func (a *Arena) New(t Type, outputs, inputs, block int) (*Matrix, error) {
	m, err := shaped(t, outputs, inputs, block)
	if err != nil {
		return nil, err
	}
	m.data, err = a.take(m.Panels() * m.panelBytes)
	return m, err
}

func shaped(t Type, outputs, inputs, block int) (*Matrix, error) {
	if int(t) >= len(kinds) || outputs < 1 || inputs < 1 {
		return nil, fmt.Errorf("%w: %d × %d of type %d", ErrShape, outputs, inputs, t)
	}
	m := &Matrix{Type: t, Out: outputs, In: inputs, Block: block}
	ok := block == 0 || t.bits() != 0 && !t.rounds() && block > 1 && block%2 == 0 && slab%block == 0 && inputs%block == 0
	switch {
	case t.units():
		ok = block > 1 && block%2 == 0 && unit%block == 0 && inputs%unit == 0
	case t.rounds():
		ok = (block == 32 || block == 16 && t.bits() != 5) && inputs%inputBlock == 0
	case t.bits() != 0 && block == 0:
		ok = false
	case t == W16A16:
		ok = ok && inputs%2 == 0
	}
	if !ok {
		return nil, fmt.Errorf("%w: %v of %d inputs in blocks of %d", ErrShape, t, inputs, block)
	}
	m.chooseKernels()
	m.panelBytes = m.bytesOf(inputs)
	return m, nil
}

// Unit returns how many consecutive inputs must stay together when the inputs are divided. For types that round
// activations to 8 bits, these are the 32 activations that share a scale. For types with units, they are the inputs of
// a unit; for W16A16, the two inputs of a pair. For all other types, they are the inputs of a block, or one input if
// there are no blocks.
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

// Slices returns the largest n of 4, 2 and 1 for which the inputs can be divided into n equal slices of whole units.
func Slices(inputs, unit int) int {
	for _, n := range []int{4, 2} {
		if inputs%(n*unit) == 0 {
			return n
		}
	}
	return 1
}

// Slice sets the number of slices of the inputs: 1, 2 or 4. A product computes a sum for each slice, and adds these
// sums in pairs. Two matrices can therefore share the work of a larger one, each with half of its inputs and half of
// its slices. The sum of their two products then has the same bits as the product with the larger matrix.
func (m *Matrix) Slice(n int) error {
	if n != 1 && n != 2 && n != 4 || m.In%(n*m.Unit()) != 0 {
		return fmt.Errorf("%w: %d slices of %d inputs in blocks of %d", ErrShape, n, m.In, m.Unit())
	}
	m.slices = n
	return nil
}

// Panels returns the number of panels.
func (m *Matrix) Panels() int { return (m.Out + Panel - 1) / Panel }

// Bytes returns the size of the packed weights.
func (m *Matrix) Bytes() int { return len(m.data) }

// Data returns the packed weights. Benchmarks use it to measure how fast the weights can be read.
func (m *Matrix) Data() []byte { return m.data }

// Size estimates the bytes of the packed weights of a matrix.
func Size(t Type, outputs, inputs, block int) int {
	m := &Matrix{Type: t, Out: outputs, Block: block}
	return m.bytesOf(inputs) * outputs / Panel
}

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

// scaleBytes returns the size of the scales and minima in a unit of a panel, if the type has units. For other types, it
// returns the size of the scales and minima in a block of a panel.
func (t Type) scaleBytes() int {
	bytes := Panel * 2
	if kinds[t].single {
		bytes *= 2
	}
	if t.hasMinimum() {
		bytes *= 2
	}
	return bytes
}

// factorBytes returns the size of the factors in a block of a panel, for types with units.
func (t Type) factorBytes() int {
	if t.hasMinimum() {
		return Panel * 2
	}
	return Panel
}

// kernels returns the type whose kernels read the packed weights. Weights of W16A16 that are not in pairs are packed as
// BF16.
func (m *Matrix) kernels() Type {
	if m.Type == W16A16 && !m.pairs {
		return BF16
	}
	return m.Type
}

// slab returns the number of inputs whose weights are decoded at a time, a multiple of Unit.
func (m *Matrix) slab() int { return slab / m.Unit() * m.Unit() }

func (m *Matrix) panel(p int) *byte { return &m.data[p*m.panelBytes] }

func (m *Matrix) halves(p int) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(m.panel(p))), m.panelBytes/2)
}

func (m *Matrix) floats(p int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(m.panel(p))), m.panelBytes/4)
}
