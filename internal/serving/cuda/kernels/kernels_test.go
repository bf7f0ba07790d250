package kernels_test

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/half"
	"llmmemory/internal/testkit/cudatest"
	"llmmemory/internal/testkit/level"
)

// A gpu is the emulated GPU, with all kernels loaded. If LLM_CUDA_DRIVER is set (see package cudatest), it is
// a real one.
type gpu struct {
	*cudatest.Driver
	t       *testing.T
	context *cuda.Context
	set     *kernels.Set
	stream  *cuda.Stream
}

// interpreters are those of the tests that have run. In make test-long, every test compares the PTX of the kernels that
// it launches with their sources.
var interpreters []*cudatest.Interpreter

func newGPU(t *testing.T) *gpu {
	t.Helper()
	return begin(t, cudatest.Open(t))
}

// newGPUOf returns a GPU of a compute capability.
func newGPUOf(t *testing.T, capability int) *gpu {
	t.Helper()
	d := cudatest.Open(t)
	d.Set(t, "compute_capability", capability)
	return begin(t, d)
}

func begin(t *testing.T, d *cudatest.Driver) *gpu {
	t.Helper()
	g := &gpu{Driver: d, t: t}
	driver, err := cuda.Open(g.Path)
	require.NoError(t, err)
	g.context, err = driver.NewContext(0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.context.Close()) })
	g.set, err = kernels.Load(g.context)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.set.Close()) })
	g.stream, err = g.context.NewStream()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.stream.Close()) })
	if level.Long() && !g.Real {
		interpreters = append(interpreters, g.Interpret(t))
	}
	return g
}

// bytes returns new memory with contents.
func (g *gpu) bytes(contents []byte) *cuda.Memory {
	g.t.Helper()
	m, err := g.context.Alloc(len(contents))
	require.NoError(g.t, err)
	g.t.Cleanup(func() { require.NoError(g.t, m.Close()) })
	require.NoError(g.t, m.Write(0, contents))
	return m
}

// empty returns memory in which every number is NaN.
func (g *gpu) empty(size int) *cuda.Memory {
	g.t.Helper()
	m, err := g.context.Alloc(size)
	require.NoError(g.t, err)
	g.t.Cleanup(func() { require.NoError(g.t, m.Close()) })
	if g.Real {
		require.NoError(g.t, errors.Join(g.stream.Fill(m, 0, size, 0xff), g.stream.Synchronize()))
	}
	return m
}

func (g *gpu) read(m *cuda.Memory) []byte {
	g.t.Helper()
	require.NoError(g.t, g.stream.Synchronize())
	contents := make([]byte, m.Size())
	require.NoError(g.t, m.Read(0, contents))
	return contents
}

// encode rounds numbers to a type.
func encode(kind kernels.Type, numbers []float64) []byte {
	contents := make([]byte, 0, 2*len(numbers))
	for _, x := range numbers {
		bits := half.ToF16(float32(x))
		if kind == kernels.BF16 {
			bits = half.ToBF16(float32(x))
		}
		contents = binary.LittleEndian.AppendUint16(contents, bits)
	}
	return contents
}

func decode(kind kernels.Type, contents []byte) []float64 {
	numbers := make([]float64, len(contents)/2)
	for i := range numbers {
		bits := binary.LittleEndian.Uint16(contents[2*i:])
		numbers[i] = float64(half.FromF16(bits))
		if kind == kernels.BF16 {
			numbers[i] = float64(half.FromBF16(bits))
		}
	}
	return numbers
}

// random returns numbers of a normal distribution, rounded to the type.
func random(kind kernels.Type, seed uint64, n int) []float64 {
	rng := rand.New(rand.NewPCG(seed, 1))
	numbers := make([]float64, n)
	for i := range numbers {
		numbers[i] = rng.NormFloat64()
	}
	return decode(kind, encode(kind, numbers))
}

// requireClose requires that got contains the elements of want, rounded to the type. An element may differ from the
// element of want by the largest error that this rounding can make. It may differ by a little more, because kernels
// also round intermediate results to float32.
func requireClose(t *testing.T, kind kernels.Type, want, got []float64) {
	t.Helper()
	bits := map[kernels.Type]float64{kernels.F16: 11, kernels.BF16: 8}[kind]
	require.Len(t, got, len(want))
	for i := range want {
		allowed := math.Abs(want[i])*math.Exp2(-bits)*1.01 + 1e-7
		if !(math.Abs(got[i]-want[i]) <= allowed) {
			t.Fatalf("element %d is %v, want %v", i, got[i], want[i])
		}
	}
}

// encoded returns memory with numbers of a type.
func (g *gpu) encoded(kind kernels.Type, numbers []float64) *cuda.Memory {
	g.t.Helper()
	return g.bytes(encode(kind, numbers))
}

// pointer returns 0 for no memory.
func pointer(m *cuda.Memory) cuda.Pointer {
	if m == nil {
		return 0
	}
	return m.Pointer()
}

func words(numbers ...int32) []byte {
	var b []byte
	for _, x := range numbers {
		b = binary.LittleEndian.AppendUint32(b, uint32(x))
	}
	return b
}

func floats(numbers ...float64) []byte {
	var b []byte
	for _, x := range numbers {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
	}
	return b
}

func int32At(b []byte, i int) int32 { return int32(binary.LittleEndian.Uint32(b[4*i:])) }
