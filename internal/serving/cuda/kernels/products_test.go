package kernels_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/half"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/testkit/level"
	"llmmemory/internal/testkit/weightfile"
)

// fileFormats are the formats as files have them.
var fileFormats = map[kernels.WeightFormat]struct {
	number          uint32 // of GGUF
	elements, bytes int    // of a block
	scales          []int  // where a block has its float16 numbers
}{
	kernels.Q8_0: {8, 32, 34, []int{0}}, kernels.Q4_0: {2, 32, 18, []int{0}}, kernels.MXFP4: {39, 32, 17, nil},
	kernels.Q4_K: {12, 256, 144, []int{0, 2}}, kernels.Q5_K: {13, 256, 176, []int{0, 2}}, kernels.Q6_K: {14, 256, 210, []int{208}},
}

var weightFormats = []kernels.WeightFormat{kernels.Plain, kernels.Q8_0, kernels.Q4_0, kernels.MXFP4, kernels.Q4_K, kernels.Q5_K, kernels.Q6_K}

// packedWeights are weights on the GPU, together with the same weights as the CPU reads them.
type packedWeights struct {
	kernels.Weights
	file     []byte
	numbers  []float64
	function kernels.Function
}

// newMatrix draws random weights and packs them on the GPU. It returns the packed weights together with the values of
// the weights. If the format has scales, newMatrix draws the bytes of a file, and the values are those that package
// weights reads from these bytes.
func newMatrix(g *gpu, kind kernels.Type, format kernels.WeightFormat, outputs, columns int) packedWeights {
	g.t.Helper()
	m := packedWeights{Weights: kernels.Weights{Type: kind, Format: format, Outputs: outputs, Columns: columns}}
	m.Packed = g.empty(m.PackedBytes()).Pointer()
	if format == kernels.Plain {
		m.numbers = random(kind, 77, outputs*columns)
		m.file = encode(kind, m.numbers)
	} else {
		m.file, m.numbers = randomBlocks(g.t, format, outputs, columns)
	}
	require.NoError(g.t, kernels.PackWeights{Weights: m.Weights, Rows: g.bytes(m.file).Pointer()}.Launch(g.set, g.stream))
	return m
}

// gated returns the same weights, packed for a function, in pieces of 128 rows.
func (m packedWeights) gated(g *gpu, function kernels.Function) packedWeights {
	g.t.Helper()
	m.Gated, m.function = true, function
	m.Packed = g.empty(m.PackedBytes()).Pointer()
	row := len(m.file) / m.Outputs
	for start := 0; start < m.Outputs; start += 128 {
		n := min(128, m.Outputs-start)
		piece := g.bytes(m.file[start*row:][:n*row])
		require.NoError(g.t, kernels.PackWeights{Weights: m.Weights, Rows: piece.Pointer(), Start: start, Count: n}.Launch(g.set, g.stream))
	}
	return m
}

func randomBlocks(t *testing.T, format kernels.WeightFormat, outputs, columns int) (file []byte, numbers []float64) {
	t.Helper()
	f := fileFormats[format]
	rng := rand.New(rand.NewPCG(uint64(format), 1))
	for range outputs * columns / f.elements {
		block := make([]byte, f.bytes)
		for i := range block {
			block[i] = byte(rng.Uint32())
		}
		for _, offset := range f.scales {
			binary.LittleEndian.PutUint16(block[offset:], half.ToF16(float32(rng.NormFloat64()/32)))
		}
		if f.scales == nil {
			block[0] = byte(118 + rng.IntN(12))
		}
		file = append(file, block...)
	}
	path := filepath.Join(t.TempDir(), "model.gguf")
	tensor := weightfile.Tensor{Name: "w", Type: f.number, Shape: []int{outputs, columns}, Data: file}
	require.NoError(t, os.WriteFile(path, weightfile.GGUF(map[string]any{"general.architecture": "llama"}, tensor), 0o600))
	gguf, err := weights.OpenGGUF(path)
	require.NoError(t, err)
	row := make([]float32, columns)
	for i := range outputs {
		gguf.Get("w").Row(i, row)
		for _, x := range row {
			numbers = append(numbers, float64(x))
		}
	}
	require.NoError(t, gguf.Close())
	return file, numbers
}

// workspace is memory that the products of a test share. The field arrived is memory for counters. The counters are 0
// before a product, and each product must leave them 0.
type workspace struct{ parts, arrived, unpacked *cuda.Memory }

func newWorkspace(g *gpu) workspace {
	w := workspace{g.empty(4 << 20), g.empty(4096), g.empty(4 << 20)}
	require.NoError(g.t, w.arrived.Write(0, make([]byte, 4096)))
	return w
}

// multiply computes a product on the emulated GPU with the plan for the given number of
// multiprocessors.
func (m packedWeights) multiply(g *gpu, w workspace, inputs []float64, multiprocessors int) []byte {
	g.t.Helper()
	device := g.context.Device()
	device.Multiprocessors = multiprocessors
	rows := len(inputs) / m.Columns
	plan, err := m.Plan(device, rows)
	require.NoError(g.t, err)
	require.LessOrEqual(g.t, plan.PartBytes, w.parts.Size())
	require.LessOrEqual(g.t, 4*plan.Counters, w.arrived.Size())
	require.LessOrEqual(g.t, plan.UnpackedBytes, w.unpacked.Size())
	outputs := m.Outputs
	if m.Gated {
		outputs /= 2
	}
	out := g.empty(2 * rows * outputs)
	p := kernels.Product{Weights: m.Weights, Function: m.function, Out: out.Pointer(), In: g.encoded(m.Type, inputs).Pointer(), Rows: rows, Plan: plan,
		Parts: w.parts.Pointer(), Arrived: w.arrived.Pointer(), Unpacked: w.unpacked.Pointer()}
	require.NoError(g.t, p.Launch(g.set, g.stream))
	result := g.read(out)
	require.Equal(g.t, make([]byte, 4096), g.read(w.arrived), "counters")
	return result
}

// requireMatches compares outputs with sums in float64.
//
// The kernel rounds outputs to m.Type, with a relative error of at most u. It also rounds weights that have scales.
// So requireMatches computes two sums for each output: y from the rounded weights, and z from the weights as they are
// in the file.
//
// The output may differ from y by u |y| and a little more. This allows for the rounding of the output, and for the
// rounding errors of float32. With scales, it may differ more, because the kernel rounds a few weights to the other
// neighbour.
//
// The output may differ from z by u |z| and about 7 standard deviations of the effect that the rounded weights have
// on a sum. The rounding errors of the weights are independent, so this standard deviation is below
//
//	u/sqrt(3) * sqrt(sum of the squared products)
func (m packedWeights) requireMatches(t *testing.T, inputs []float64, got []float64) {
	t.Helper()
	u := map[kernels.Type]float64{kernels.F16: 0x1p-11, kernels.BF16: 0x1p-8}[m.Type]
	rounded := decode(m.Type, encode(m.Type, m.numbers))
	for i := range got {
		x, w := inputs[i/m.Outputs*m.Columns:][:m.Columns], m.numbers[i%m.Outputs*m.Columns:]
		r := rounded[i%m.Outputs*m.Columns:]
		want, wantRounded, squares, size := 0.0, 0.0, 0.0, 0.0
		for k, v := range x {
			want += v * w[k]
			wantRounded += v * r[k]
			squares += v * w[k] * v * w[k]
			size += math.Abs(v * w[k])
		}
		allowed := 1.001*u*math.Abs(wantRounded) + 2e-6*size + 1e-7
		if m.Format != kernels.Plain { // a few weights are rounded to the other neighbour
			allowed += u * math.Sqrt(squares) / 8
		}
		if !(math.Abs(got[i]-wantRounded) <= allowed) {
			t.Fatalf("output %d of row %d is %v, with rounded weights it should be %v within %.1e", i%m.Outputs, i/m.Outputs, got[i], wantRounded, allowed)
		}
		if allowed := u*math.Abs(want) + 4*u*math.Sqrt(squares); !(math.Abs(got[i]-want) <= allowed) {
			t.Fatalf("output %d of row %d is %v, want %v within %.1e", i%m.Outputs, i/m.Outputs, got[i], want, allowed)
		}
	}
}

// Ensure that products match float64. The bits of a row must not depend on the number of rows, on the kernel (for few
// rows or for many) or on the order of threads. They must also be the same whether one block or several compute the
// parts of a sum.
func TestProductsMatchFloat64AndDoNotDependOnTheNumberOfRows(t *testing.T) {
	g := newGPU(t)
	space := newWorkspace(g)
	order := 0
	for _, c := range level.First(8, []struct {
		kind             kernels.Type
		format           kernels.WeightFormat
		outputs, columns int
	}{
		{kernels.F16, kernels.Plain, 3, 8}, {kernels.BF16, kernels.Plain, 128, 384}, {kernels.BF16, kernels.Q8_0, 20, 128},
		{kernels.BF16, kernels.Q4_0, 20, 160}, {kernels.BF16, kernels.MXFP4, 20, 160}, {kernels.BF16, kernels.Q4_K, 20, 256},
		{kernels.F16, kernels.Q5_K, 20, 256}, {kernels.F16, kernels.Q6_K, 20, 256},
		{kernels.F16, kernels.Plain, 150, 2056}, {kernels.F16, kernels.Q8_0, 150, 1056}, {kernels.F16, kernels.Q4_0, 150, 1056},
		{kernels.F16, kernels.MXFP4, 140, 1056}, {kernels.F16, kernels.Q4_K, 129, 1024}, {kernels.BF16, kernels.Q5_K, 140, 1024},
		{kernels.BF16, kernels.Q6_K, 140, 1024},
	}) {
		t.Run(fmt.Sprintf("%v, %v, %d outputs, %d columns", c.kind, c.format, c.outputs, c.columns), func(t *testing.T) {
			order++
			g.Order(order)
			m := newMatrix(g, c.kind, c.format, c.outputs, c.columns)
			const rows = 70
			inputs := random(c.kind, 5, rows*c.columns)
			want := m.multiply(g, space, inputs, one)
			m.requireMatches(t, inputs, decode(c.kind, want))
			require.Equal(t, want, m.multiply(g, space, inputs, many), "parts apart")
			for _, n := range []int{1, 9, 32, 33} {
				require.Equal(t, want[:2*n*c.outputs], m.multiply(g, space, inputs[:n*c.columns], many), "%d rows", n)
			}
		})
	}
}

// Ensure that a product with a function has the bits of a product and an activation.
func TestProductsWithAFunction(t *testing.T) {
	g := newGPU(t)
	space := newWorkspace(g)
	for _, c := range level.First(3, []struct {
		kind     kernels.Type
		format   kernels.WeightFormat
		columns  int
		function kernels.Function
		rows     int
	}{{kernels.F16, kernels.Plain, 1024, kernels.SiLUAndMul, 40}, {kernels.BF16, kernels.Q4_K, 256, kernels.GELUTanhAndMul, 3}, {kernels.F16, kernels.Plain, 256, kernels.GELUTanhAndMul, 11},
		{kernels.F16, kernels.Q8_0, 256, kernels.SiLUAndMul, 130}, {kernels.BF16, kernels.Plain, 1024, kernels.SiLUAndMul, 140}}) {
		const n = 144 // gates
		m := newMatrix(g, c.kind, c.format, 2*n, c.columns)
		inputs := random(c.kind, 5, c.rows*c.columns)
		products, want := g.bytes(m.multiply(g, space, inputs, one)), g.empty(2*c.rows*n)
		require.NoError(t, kernels.Activation{Type: c.kind, Function: c.function, In: products.Pointer(), Out: want.Pointer(), Rows: c.rows, N: n}.Launch(g.set, g.stream))
		gated := m.gated(g, c.function)
		require.Equal(t, g.read(want), gated.multiply(g, space, inputs, one), "%v", c)
		require.Equal(t, g.read(want), gated.multiply(g, space, inputs, many), "%v, parts apart", c)
	}
}

// Ensure that products match float64 for the largest tiles and for as many rows as a large batch has.
func TestProductsOf256Rows(t *testing.T) {
	level.SkipNormal(t)
	g := newGPU(t)
	space := newWorkspace(g)
	m := newMatrix(g, kernels.BF16, kernels.Plain, 136, 1024)
	inputs := random(kernels.BF16, 6, 257*m.Columns)
	want := m.multiply(g, space, inputs, one)
	m.requireMatches(t, inputs, decode(kernels.BF16, want))
	for _, n := range []int{128, 256} {
		require.Equal(t, want[:2*n*m.Outputs], m.multiply(g, space, inputs[:n*m.Columns], many), "%d rows", n)
	}
	require.Equal(t, want[:2*2*m.Outputs], m.multiply(g, space, inputs[:2*m.Columns], one), "2 rows")
}

// Ensure that products run on GPUs with at most 99 KiB of shared memory for a block (RTX 30 and 40, L4). The limit
// includes dynamic memory and what the kernels declare.
func TestProductsFitInLittleSharedMemory(t *testing.T) {
	level.SkipNormal(t)
	g := newGPUOf(t, 86)
	space := newWorkspace(g)
	require.Equal(t, 99<<10, g.context.Device().SharedMemory)
	for _, format := range weightFormats {
		m := newMatrix(g, kernels.BF16, format, 128, 256)
		for _, rows := range []int{1, 9, 32, 33, 65, 129} {
			if format != kernels.Plain && rows > 32 {
				continue // the same kernel
			}
			inputs := random(kernels.BF16, 5, rows*m.Columns)
			m.requireMatches(t, inputs, decode(kernels.BF16, m.multiply(g, space, inputs, one)))
		}
	}
}

func TestProductsRefuse(t *testing.T) {
	g := newGPU(t)
	device := g.context.Device()
	_, err := kernels.Weights{Format: kernels.Q4_K, Outputs: 3, Columns: 128}.Plan(device, 1)
	require.EqualError(t, err, "q4_k weights of 128 columns: a multiple of 256 is possible")
	_, err = kernels.Weights{Outputs: 0, Columns: 128}.Plan(device, 1)
	require.EqualError(t, err, "weights of 0 outputs and 128 columns: there must be some")
	require.Error(t, kernels.PackWeights{Weights: kernels.Weights{Outputs: 3, Columns: 4}}.Launch(g.set, g.stream))
	w := kernels.Weights{Outputs: 16, Columns: 128}
	plan, err := w.Plan(device, 2)
	require.NoError(t, err)
	p := kernels.Product{Weights: w, Rows: 3, Plan: plan}
	require.ErrorContains(t, p.Launch(g.set, g.stream), "the plan is for 2 and")
	p.Rows, p.InStride = 2, 100
	require.ErrorContains(t, p.Launch(g.set, g.stream), "a product with strides of 100 elements for rows and 0 for outputs")
	p.Function = kernels.SiLUAndMul
	require.ErrorContains(t, p.Launch(g.set, g.stream), "gated weights have silu_and_mul or gelu_tanh_and_mul, others no function")
	_, err = kernels.Weights{Outputs: 48, Columns: 128, Gated: true}.Plan(device, 1)
	require.EqualError(t, err, "weights of 48 outputs with gates: a multiple of 32 is possible")
	require.EqualError(t, kernels.PackWeights{Weights: kernels.Weights{Outputs: 300, Columns: 128, Packed: 16}, Rows: 16, Start: 128, Count: 30}.Launch(g.set, g.stream),
		"pack_weights of 30 rows from row 128, of 300: a piece must begin at a multiple of 128, and end at one or after the last row")
	p.Function, p.InStride, p.Packed, p.In = "", 0, 16, 8
	require.ErrorContains(t, p.Launch(g.set, g.stream), "In is 0x8: the address must be a multiple of 16")
}

// Ensure that float32 outputs, rounded to 16 bits, equal the outputs of a product without Float32. The cases have sums
// of one part and of several, few rows and many, and weights that are read several times or unpacked.
func TestProductsWithFloat32Outputs(t *testing.T) {
	g := newGPU(t)
	space := newWorkspace(g)
	for _, c := range level.First(4, []struct {
		format        kernels.WeightFormat
		columns, rows int
	}{{kernels.Plain, 256, 3}, {kernels.Plain, 1024, 3}, {kernels.Plain, 256, 40}, {kernels.Q4_0, 256, 40}, {kernels.Plain, 1024, 70}, {kernels.Q8_0, 256, 130}}) {
		rows := c.rows
		m := newMatrix(g, kernels.F16, c.format, 20, c.columns)
		inputs := random(kernels.F16, 5, rows*m.Columns)
		plan, err := m.Plan(g.context.Device(), rows)
		require.NoError(t, err)
		out := g.empty(4 * rows * m.Outputs)
		p := kernels.Product{Weights: m.Weights, Out: out.Pointer(), In: g.encoded(m.Type, inputs).Pointer(), Rows: rows, Plan: plan, Float32: true,
			Parts: space.parts.Pointer(), Arrived: space.arrived.Pointer(), Unpacked: space.unpacked.Pointer()}
		require.NoError(t, p.Launch(g.set, g.stream))
		numbers := make([]float64, rows*m.Outputs)
		for i := range numbers {
			numbers[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(g.read(out)[4*i:])))
		}
		rounded := encode(m.Type, numbers)
		require.Equal(t, m.multiply(g, space, inputs, one), rounded)
		require.NotEqual(t, decode(m.Type, rounded), numbers)
	}
}
