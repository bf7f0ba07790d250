package cuda_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/testkit/cudatest"
)

// A gpu is the emulated GPU of a test.
type gpu struct {
	*cudatest.Driver
	t       *testing.T
	context *cuda.Context
	stream  *cuda.Stream
}

func newGPU(t *testing.T) *gpu {
	t.Helper()
	g := &gpu{Driver: cudatest.Open(t), t: t}
	g.begin()
	t.Cleanup(g.end)
	return g
}

// begin creates a context and a stream. A test calls it again after a failed launch.
func (g *gpu) begin() {
	g.t.Helper()
	driver, err := cuda.Open(g.Path)
	require.NoError(g.t, err)
	g.context, err = driver.NewContext(0)
	require.NoError(g.t, err)
	g.stream, err = g.context.NewStream()
	require.NoError(g.t, err)
}

func (g *gpu) end() {
	g.t.Helper()
	require.NoError(g.t, g.stream.Close())
	require.NoError(g.t, g.context.Close())
}

// memory returns memory with numbers.
func (g *gpu) memory(words ...uint32) *cuda.Memory {
	g.t.Helper()
	var contents []byte
	for _, w := range words {
		contents = binary.LittleEndian.AppendUint32(contents, w)
	}
	m, err := g.context.Alloc(len(contents))
	require.NoError(g.t, err)
	require.NoError(g.t, m.Write(0, contents))
	return m
}

// words reads memory.
func (g *gpu) words(m *cuda.Memory) []uint32 {
	g.t.Helper()
	contents := make([]byte, m.Size())
	require.NoError(g.t, m.Read(0, contents))
	words := make([]uint32, len(contents)/4)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(contents[4*i:])
	}
	return words
}

// kernel returns a kernel of testdata/faults.cu. The parameter types lists the PTX types of the
// kernel's parameters.
func (g *gpu) kernel(name string, types ...string) *cuda.Kernel {
	g.t.Helper()
	var parameters []string
	for i, kind := range types {
		parameters = append(parameters, fmt.Sprintf("\t.param .%s %s_param_%d", kind, name, i))
	}
	m, err := g.context.LoadModule("faults", fmt.Sprintf(".version 7.4\n.target sm_80\n.visible .entry %s(\n%s\n)\n{\n}\n", name, strings.Join(parameters, ",\n")))
	require.NoError(g.t, err)
	k, err := m.Kernel(name)
	require.NoError(g.t, err)
	return k
}

// run launches a kernel and waits for it. Each argument is a memory or an int32.
func (g *gpu) run(name string, shape cuda.Shape, arguments ...any) error {
	g.t.Helper()
	var types []string
	for i, a := range arguments {
		if m, ok := a.(*cuda.Memory); ok {
			arguments[i] = m.Pointer()
			types = append(types, "u64")
		} else {
			types = append(types, "u32")
		}
	}
	if err := g.kernel(name, types...).Launch(g.stream, shape, arguments...); err != nil {
		return err
	}
	return g.stream.Synchronize()
}

func bitsOf(numbers []float64) []uint32 {
	words := make([]uint32, len(numbers))
	for i, x := range numbers {
		words[i] = math.Float32bits(float32(x))
	}
	return words
}
