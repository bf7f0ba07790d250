package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/half"
	"llmmemory/internal/serving/model/weights"
)

// A product multiplies rows of inputs by weights.
type product struct {
	matrixShape
	rows int
}

type matrixShape struct {
	format                      kernels.WeightFormat
	outputs, columns, inputRows int // products use the last of the rows of inputs
}

func (c product) benchmark(required goal) benchmark {
	kernel := "product"
	if c.format != kernels.Plain {
		kernel = fmt.Sprintf("product_%v", c.format)
	}
	return benchmark{fmt.Sprintf("%s outputs=%d columns=%d rows=%d", kernel, c.outputs, c.columns, c.rows), required, c.prepare}
}

func (c product) prepare(b *bench) prepared {
	m := b.matrixOf(c.matrixShape)
	first := c.inputRows - c.rows
	run, out := m.batch(b, first, c.rows)
	p := prepared{kernel: run, bytes: float64(m.PackedBytes() + 2*c.rows*(c.columns+c.outputs)), others: m.copies(b, run)}
	if c.rows > 32 {
		p.flops = 2 * float64(c.rows) * float64(c.outputs) * float64(c.columns)
	}
	p.check = func() float64 { return m.worst(contents(out, 0, out.Size()), first) }
	p.batchInvariant = func() bool {
		got := contents(out, 0, out.Size())
		equalBits := bytes.Equal(got, m.results[2*first*c.outputs:])
		for _, i := range checked(c.rows) {
			equalBits = equalBits && bytes.Equal(m.compute(b, first+i, 1), got[2*i*c.outputs:][:2*c.outputs])
		}
		return equalBits
	}
	return p
}

// A matrix has weights on the GPU, rows of inputs, and the products of all rows, which were computed in one batch.
type matrix struct {
	matrixShape
	kernels.Weights
	file, input []byte // the weights as files have them, and inputs
	inputs      *cuda.Memory
	packed      *cuda.Memory
	results     []byte
	memory      closers
}

// matrixOf returns a matrix of a shape. It keeps the last one, because consecutive cases often have the same shape.
func (b *bench) matrixOf(shape matrixShape) *matrix {
	if b.matrix != nil && b.matrix.matrixShape == shape {
		return b.matrix
	}
	must(b.closeMatrix())
	m := &matrix{matrixShape: shape, Weights: kernels.Weights{Format: shape.format, Outputs: shape.outputs, Columns: shape.columns}}
	m.packed = b.alloc(m.PackedBytes())
	m.Packed = m.packed.Pointer()
	m.input, m.inputs = b.random(m.inputRows * m.columns)
	kept := len(b.memory)
	b.run(kernels.PackWeights{Weights: m.Weights, Rows: m.makeFile(b).Pointer()})
	m.results = m.compute(b, 0, m.inputRows)
	m.memory, b.memory = b.memory[:kept:kept], b.memory[kept:]
	b.matrix = m
	return m
}

func (b *bench) closeMatrix() error {
	m := b.matrix
	if b.matrix = nil; m == nil {
		return nil
	}
	return m.memory.close()
}

// batch returns the product of some rows of the inputs, and the memory of its outputs, which is freed after the case.
func (m *matrix) batch(b *bench, first, rows int) (p kernels.Product, out *cuda.Memory) {
	plan := mustGet(m.Plan(b.context.Device(), rows))
	out = b.alloc(2 * rows * m.outputs)
	p = kernels.Product{Weights: m.Weights, Out: out.Pointer(), In: m.inputs.Pointer() + cuda.Pointer(2*first*m.columns), Rows: rows, Plan: plan}
	if plan.PartBytes > 0 {
		p.Parts = b.alloc(plan.PartBytes).Pointer()
	}
	if plan.UnpackedBytes > 0 {
		p.Unpacked = b.alloc(plan.UnpackedBytes).Pointer()
	}
	if plan.Counters > 0 {
		p.Arrived = b.upload(make([]byte, 4*plan.Counters)).Pointer()
	}
	return p, out
}

// copies returns the product with copies of the weights, which take 2 GiB with the weights themselves.
func (m *matrix) copies(b *bench, p kernels.Product) (all []kernel) {
	n := (2<<30)/m.packed.Size() - 1
	if b.small {
		n = 1
	}
	for range n {
		other := b.alloc(m.packed.Size())
		must(b.stream.Copy(other, 0, m.packed, 0, other.Size()))
		p.Packed = other.Pointer()
		all = append(all, p)
	}
	return all
}

func (m *matrix) compute(b *bench, first, rows int) []byte {
	p, out := m.batch(b, first, rows)
	b.run(p)
	return contents(out, 0, out.Size())
}

// worst checks some outputs of some rows, and returns the largest error as a multiple of the allowed error. The outputs
// got belong to consecutive rows of the inputs. The index of the first of these rows is first. worst fails if any
// output is NaN, because then no kernel wrote it.
//
// An output is a sum of products of inputs and weights. It may differ from a float64 sum by one unit in the last place,
// and by the float32 rounding errors of a long sum. The kernels also round GGUF weights to F16, with a relative error
// of at most 2^-11. The errors of these weights are independent, so worst allows for them the additional error
//
//	4 * 2^-11 * sqrt(sum of the squared products)
func (m *matrix) worst(got []byte, first int) (worst float64) {
	for i := 0; i < len(got); i += 2 {
		if binary.LittleEndian.Uint16(got[i:])&0x7fff > 0x7c00 {
			must(fmt.Errorf("output %d of row %d is NaN", i/2%m.outputs, i/2/m.outputs))
		}
	}
	const maxChecked = 97
	tensor, weights := weights.FromBytes(dtypes[m.format], m.outputs, m.columns, m.file), make([]float32, m.columns)
	for n := range min(m.outputs, maxChecked) {
		output := n
		if m.outputs > maxChecked {
			output = n * (m.outputs - 1) / (maxChecked - 1)
		}
		tensor.Row(output, weights)
		for _, row := range checked(len(got) / 2 / m.outputs) {
			want, squares, size := 0.0, 0.0, 0.0
			for k, w := range weights {
				x := float64(w) * element(m.input, (first+row)*m.columns+k)
				want, squares, size = want+x, squares+x*x, size+math.Abs(x)
			}
			allowed := 0x1p-10*math.Abs(want) + 2e-6*size + 1e-7
			if m.format != kernels.Plain {
				allowed += 4 * 0x1p-11 * math.Sqrt(squares)
			}
			worst = max(worst, math.Abs(element(got, row*m.outputs+output)-want)/allowed)
		}
	}
	return worst
}

var dtypes = map[kernels.WeightFormat]weights.DType{kernels.Plain: weights.F16, kernels.Q8_0: weights.Q8_0, kernels.Q4_K: weights.Q4_K}

func (m *matrix) makeFile(b *bench) (rows *cuda.Memory) {
	switch n := m.outputs * m.columns; m.format {
	case kernels.Q8_0:
		return m.makeBlocks(b, n/32, 34, 0)
	case kernels.Q4_K:
		return m.makeBlocks(b, n/256, 144, 0, 2)
	default:
		m.file, rows = b.random(n)
	}
	return rows
}

// makeBlocks makes random blocks of GGUF weights. scales are the offsets of the F16 numbers in a block. To save time,
// only the first 2^14 + 1 blocks are drawn, and the array then repeats them. This number is not a multiple of the
// number of blocks in a row. Each repetition therefore begins at another place of a row than the previous repetition,
// and so has other rows.
func (m *matrix) makeBlocks(b *bench, blocks, size int, scales ...int) *cuda.Memory {
	const period = 1<<14 + 1
	m.file = make([]byte, blocks*size)
	for i := range min(blocks, period) {
		block := m.file[i*size:][:size]
		for j := range block {
			block[j] = byte(b.rng.Uint32())
		}
		for _, offset := range scales {
			binary.LittleEndian.PutUint16(block[offset:], half.ToF16(float32(b.rng.NormFloat64()/32)))
		}
	}
	for offset := period * size; offset < len(m.file); offset += period * size {
		copy(m.file[offset:], m.file[:period*size])
	}
	return b.upload(m.file)
}

// products returns benchmarks of the matrix products of a model with 8 billion parameters. These are the products in
// its layers, and the product that computes its logits. If small is true, the products are small enough for tests.
func products(small bool) (all []benchmark) {
	shapes := [][2]int{{14336, 4096}, {4096, 14336}, {6144, 4096}, {4096, 4096}, {128256, 4096}}
	if small {
		shapes = [][2]int{{28, 256}, {8, 1024}, {12, 256}, {16, 256}, {130, 256}}
	}
	rows := []struct {
		normal, small int
		minimum       float64 // of cuBLAS's rate
	}{{1, 1, 1}, {8, 2, 1}, {16, 8, 1}, {32, 32, 1}, {64, 33, 0.7}, {128, 34, 0.7}, {256, 35, 0.7}, {2048, 66, 0.6}}
	for i := range rows {
		if small {
			rows[i].normal = rows[i].small
		}
	}
	largest := rows[len(rows)-1].normal
	for _, s := range shapes {
		for _, r := range rows {
			all = append(all, product{matrixShape{kernels.Plain, s[0], s[1], largest}, r.normal}.benchmark(goal{r.minimum, "cuBLAS"}))
		}
	}
	for _, format := range []kernels.WeightFormat{kernels.Q8_0, kernels.Q4_K} {
		for _, s := range shapes {
			all = append(all, product{matrixShape{format, s[0], s[1], largest}, 1}.benchmark(goal{0.7, ofCopy}))
		}
	}
	return all
}
