package kernels_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"unsafe"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/cuda/kernels"
)

// A problem is attention of some sequences, with random numbers.
type problem struct {
	kernels.AttentionShape
	lens, queries []int // of sequences
	window        int
	softCap       float32
	slopes, sinks bool
	positive      bool   // values have one sign, so that outputs do not cancel
	blocks        uint64 // seed of the order of blocks in memory
	warps         int    // of a block of prefill; 0: as many as fit
	tiles         int    // of a padded plan of decoding; 0: the plan is not padded
	apart         bool   // another kernel merges partitions
}

// prefillMemory returns the bytes of shared memory for p.warps warps in a block of prefill.
func (p *problem) prefillMemory() int {
	rows, row := 32, (p.HeadSize/8+3)/4*64
	if p.HeadSize == 256 {
		rows = 16
	}
	return 128*row + p.warps*rows*(row+4*(p.HeadSize+2))
}

// numbers holds the inputs of a problem: queries [token][head][element], keys and values [key
// head][sequence][token][element].
type numbers struct {
	query        []float64
	keys, values [][][]float64
	slopes       []float64
	sinks        []float64
}

func (p *problem) numbers() numbers {
	total := 0
	for _, n := range p.queries {
		total += n
	}
	n := numbers{query: random(p.Type, 1, total*p.Heads*p.HeadSize)}
	for kv := range p.KVHeads {
		n.keys, n.values = append(n.keys, nil), append(n.values, nil)
		for s, length := range p.lens {
			seed := uint64(2 + 2*(kv*len(p.lens)+s))
			keys, values := random(p.Type, seed, length*p.HeadSize), random(p.Type, seed+1, length*p.HeadSize)
			for i := range values {
				if p.positive {
					values[i] = math.Abs(values[i])
				}
			}
			n.keys[kv], n.values[kv] = append(n.keys[kv], p.rounded(keys)), append(n.values[kv], p.rounded(values))
		}
	}
	for h := range p.Heads {
		n.slopes, n.sinks = append(n.slopes, math.Exp2(-float64(h+1))), append(n.sinks, float64(h%5)-1)
	}
	return n
}

// cacheType returns the CPU's type for the keys and values of a problem.
func (p *problem) cacheType() attention.DType {
	if p.Cache != kernels.CacheAuto {
		return map[kernels.CacheType]attention.DType{kernels.CacheE4M3: attention.E4M3, kernels.CacheE5M2: attention.E5M2}[p.Cache]
	}
	return map[kernels.Type]attention.DType{kernels.F16: attention.F16, kernels.BF16: attention.BF16}[p.Type]
}

// cached returns keys or values as they are in blocks.
func (p *problem) cached(numbers []float64) []byte {
	kind := p.cacheType()
	contents := make([]byte, max(1, len(numbers)*kind.Size()))
	for i, x := range numbers {
		kind.Store(unsafe.Pointer(&contents[i*kind.Size()]), float32(x))
		if p.Cache == kernels.CacheE5M2 && math.IsInf(x, 0) { // Store saturates
			contents[i] = contents[i]&0x80 | 0x7c
		}
	}
	return contents[:len(numbers)*kind.Size()]
}

// rounded rounds numbers to the type of keys and values.
func (p *problem) rounded(numbers []float64) []float64 {
	kind, contents := p.cacheType(), p.cached(numbers)
	for i := range numbers {
		numbers[i] = float64(kind.Load(unsafe.Pointer(&contents[i*kind.Size()])))
	}
	return numbers
}

// inMemory is the content of the GPU's memory. Elements that no query attends to are NaN.
type inMemory struct {
	keys, values, tables []byte
	stride               int // of tables
	blocks               []int32
}

func (p *problem) inMemory(n numbers) inMemory {
	m := inMemory{}
	used := 0
	for _, length := range p.lens {
		m.stride = max(m.stride, (length+p.BlockSize-1)/p.BlockSize)
	}
	order := rand.New(rand.NewPCG(p.blocks, 1)).Perm(m.stride*len(p.lens) + 2)
	m.keys = bytes.Repeat([]byte{0xff}, p.cacheType().Size()*len(order)*p.KVHeads*p.BlockSize*p.HeadSize)
	m.values = slices.Clone(m.keys)
	for s, length := range p.lens {
		for i := range m.stride {
			block := int32(-1)
			if i*p.BlockSize < length {
				block = int32(order[used])
				used++
			}
			m.tables = binary.LittleEndian.AppendUint32(m.tables, uint32(block))
			m.blocks = append(m.blocks, block)
		}
		for kv := range p.KVHeads {
			keys, values := p.cached(n.keys[kv][s]), p.cached(n.values[kv][s])
			for t := range length {
				block, row := int(m.blocks[s*m.stride+t/p.BlockSize]), p.cacheType().Size()*p.HeadSize
				offset := ((block*p.KVHeads+kv)*p.BlockSize + t%p.BlockSize) * row
				copy(m.keys[offset:], keys[t*row:(t+1)*row])
				copy(m.values[offset:], values[t*row:(t+1)*row])
			}
		}
	}
	return m
}

// starts returns two lists. The list starts has the index of the first query token of each sequence. Its last element
// is the number of query tokens of all sequences. The list lens has the length of each sequence.
func (p *problem) starts() (starts, lens []int32) {
	starts = []int32{0}
	for s, n := range p.queries {
		starts, lens = append(starts, starts[s]+int32(n)), append(lens, int32(p.lens[s]))
	}
	return starts, lens
}

// run computes a problem on the emulated GPU.
func (p *problem) run(g *gpu, n numbers, multiprocessors int) []byte {
	g.t.Helper()
	m := p.inMemory(n)
	starts, lens := p.starts()
	device := g.context.Device()
	device.Multiprocessors = multiprocessors
	if p.warps > 0 {
		device.SharedMemory = p.prefillMemory()
	}
	plan, err := p.Plan(device, starts, lens, p.window)
	require.NoError(g.t, err)
	if p.tiles > 0 {
		_, ok := plan.PadDecode(p.tiles)
		require.True(g.t, ok)
	}
	out := g.empty(2 * max(1, len(n.query)))
	a := kernels.PagedAttention{AttentionShape: p.AttentionShape, Plan: plan, Window: p.window, SoftCap: p.softCap, TableStride: m.stride,
		Scale: float32(1 / math.Sqrt(float64(p.HeadSize))), Out: out.Pointer(), Query: g.bytes(encode(p.Type, n.query)).Pointer(),
		Keys: g.bytes(m.keys).Pointer(), Values: g.bytes(m.values).Pointer(), Tables: g.bytes(m.tables).Pointer(), SeqLens: g.bytes(words(lens...)).Pointer(),
		QueryStart: g.bytes(words(starts...)).Pointer(), Entries: g.bytes(words(plan.Entries...)).Pointer()}
	if plan.PartBytes > 0 {
		a.Parts = g.empty(plan.PartBytes).Pointer()
	}
	if p.slopes {
		a.Slopes = g.bytes(floats(n.slopes...)).Pointer()
	}
	if p.sinks {
		a.Sinks = g.bytes(floats(n.sinks...)).Pointer()
	}
	counters := g.bytes(make([]byte, 4*max(1, plan.Counters())))
	if !p.apart {
		a.Arrived = counters.Pointer()
	}
	require.NoError(g.t, a.Launch(g.set, g.stream))
	require.Equal(g.t, make([]byte, counters.Size()), g.read(counters), "counters")
	return g.read(out)
}

func shapeFP8(cache kernels.CacheType, kind kernels.Type, headSize, heads, kvHeads, blockSize int) kernels.AttentionShape {
	s := shape(kind, headSize, heads, kvHeads, blockSize)
	s.Cache = cache
	return s
}

func shape(kind kernels.Type, headSize, heads, kvHeads, blockSize int) kernels.AttentionShape {
	return kernels.AttentionShape{Type: kind, HeadSize: headSize, Heads: heads, KVHeads: kvHeads, BlockSize: blockSize}
}
