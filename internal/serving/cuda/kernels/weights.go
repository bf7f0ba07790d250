package kernels

import (
	"fmt"

	"llmmemory/internal/serving/cuda"
)

// A WeightFormat is how weights are stored.
type WeightFormat int

// The formats: numbers of the activations' type, and blocks of GGUF.
const (
	Plain WeightFormat = iota
	Q8_0
	Q4_0
	MXFP4
	Q4_K
	Q5_K
	Q6_K
)

// formats has the sizes of weights.h and pack_weights.cu.
var formats = [...]struct {
	name            string
	slab, stages    int // slab: bytes of 16 outputs and 128 columns when packed; stages: slabs that the kernel for few rows loads ahead
	elements, bytes int // of a block in a file
}{
	Plain: {"plain", 4096, 3, 8, 16},
	Q8_0:  {"q8_0", 2176, 4, 32, 34},
	Q4_0:  {"q4_0", 1152, 6, 32, 18},
	MXFP4: {"mxfp4", 1088, 6, 32, 17},
	Q4_K:  {"q4_k", 1216, 6, 256, 144},
	Q5_K:  {"q5_k", 1472, 5, 256, 176},
	Q6_K:  {"q6_k", 1696, 5, 256, 210},
}

func (f WeightFormat) known() bool { return f >= 0 && int(f) < len(formats) }

func (f WeightFormat) String() string {
	if !f.known() {
		return fmt.Sprintf("WeightFormat(%d)", int(f))
	}
	return formats[f].name
}

// Weights are a packed matrix. Its elements are in the order in which products read them (weights.h).
type Weights struct {
	Type             Type // of activations, and of the weights if they are Plain
	Format           WeightFormat
	Outputs, Columns int
	Gated            bool         // the first half of the outputs are gates of the second half; each half has a multiple of 16
	Packed           cuda.Pointer // PackedBytes bytes
}

// PackedOutputs is the number of outputs whose tiles are padded together. PackWeights packs a multiple of so many rows,
// or all rows up to the last one.
const PackedOutputs = 128

func ceil(n, unit int) int { return (n + unit - 1) / unit }

// tiles returns the number of tiles of 16 outputs, rounded up to whole blocks of 128 outputs.
func (w Weights) tiles() int { return ceil(w.Outputs, 128) * 8 }

func (w Weights) slabs() int { return ceil(w.Columns, 128) }

func (w Weights) shape() Weights { return Weights{w.Type, w.Format, w.Outputs, w.Columns, w.Gated, 0} }

// PackedBytes is the size of the packed matrix, or 0 if there is no kernel for such weights.
func (w Weights) PackedBytes() int {
	if w.check() != nil {
		return 0
	}
	return w.tiles() * w.slabs() * formats[w.Format].slab
}

// parts returns the number of parts into which the columns of each sum are divided. It is the largest power
// of two for which the product of a few rows has at most about 2,048 warps, and each part at least 512
// columns. It must depend only on the shape of the weights, because a row would otherwise have other bits in
// another batch or on another GPU.
func (w Weights) parts() int {
	parts := 1
	for 2*parts*ceil(w.Outputs, 16) <= 2048 && w.slabs()/(2*parts) >= 4 {
		parts *= 2
	}
	return parts
}

func (w Weights) check() error {
	if !w.Format.known() {
		return fmt.Errorf("weights of the format %d: there are kernels for 0 (%v) to %d (%v)", int(w.Format), Plain, len(formats)-1, WeightFormat(len(formats)-1))
	}
	if err := w.Type.check("weights for rows"); err != nil {
		return err
	}
	switch f := formats[w.Format]; {
	case w.Outputs < 1 || w.Columns < 1:
		return fmt.Errorf("weights of %d outputs and %d columns: there must be some", w.Outputs, w.Columns)
	case w.Columns%f.elements != 0:
		return fmt.Errorf("%v weights of %d columns: a multiple of %d is possible", w.Format, w.Columns, f.elements)
	case w.Gated && w.Outputs%32 != 0:
		return fmt.Errorf("weights of %d outputs with gates: a multiple of 32 is possible", w.Outputs)
	}
	return nil
}

// PackWeights packs rows of a matrix. The memory at Rows contains the rows in the format of the file, without gaps
// between them.
type PackWeights struct {
	Weights
	Rows         cuda.Pointer // a multiple of 16 for Plain
	Start, Count int          // the first of these rows in the matrix, a multiple of 128, and their number; 0 means up to the last one
}

// unpacked has the fields of struct Unpacked in pack_weights.cu.
type unpacked struct {
	rows             cuda.Pointer
	rowBytes         uint64
	outputs, columns int32
	firstTile, gates int32
}

// Launch puts the kernel into a stream.
func (a PackWeights) Launch(set *Set, s *cuda.Stream) error {
	c := checker{kernel: "pack_weights", err: a.check()}
	count := a.Count
	if count == 0 {
		count = a.Outputs - a.Start
	}
	c.require(a.Start >= 0 && a.Start%PackedOutputs == 0 && count >= 1 && count <= a.Outputs-a.Start && (count%PackedOutputs == 0 || a.Start+count == a.Outputs),
		" of %d rows from row %d, of %d: a piece must begin at a multiple of %d, and end at one or after the last row", count, a.Start, a.Outputs, PackedOutputs)
	c.addresses(16, operand{"Packed", a.Packed})
	align := 1
	if a.Format == Plain {
		align = 16
	}
	if c.addresses(align, operand{"Rows", a.Rows}); c.err != nil {
		return c.err
	}
	f := formats[a.Format]
	rows := unpacked{rows: a.Rows, rowBytes: uint64(a.Columns / f.elements * f.bytes), outputs: int32(count), columns: int32(a.Columns), firstTile: int32(a.Start / 16)}
	if a.Gated {
		rows.gates = int32(a.Outputs / 32)
	}
	return set.launch(s, "pack_weights_"+f.name, cuda.Shape{X: ceil(a.slabs(), 8), Y: ceil(count, PackedOutputs) * 8, Threads: 256}, a.Packed, rows)
}
