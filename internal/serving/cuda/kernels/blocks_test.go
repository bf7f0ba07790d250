package kernels_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/half"
)

// numbered returns n 16-bit elements as bytes. They count up from first.
func numbered(first, n int) []byte {
	var b []byte
	for i := range n {
		b = binary.LittleEndian.AppendUint16(b, uint16(first+i))
	}
	return b
}

// Ensure that keys and values are written to their slots. Nothing else may change.
func TestReshapeAndCacheWritesTheSlots(t *testing.T) {
	g := newGPU(t)
	const heads, size, block, blocks, stride = 3, 24, 16, 4, 5 * 24
	slots := []int64{17, -1, 0, 63}
	key, value := numbered(1000, len(slots)*stride), numbered(2000, len(slots)*stride)
	caches := [2]*cuda.Memory{g.empty(2 * blocks * block * heads * size), g.empty(2 * blocks * block * heads * size)}
	var text []byte
	for _, s := range slots {
		text = binary.LittleEndian.AppendUint64(text, uint64(s))
	}
	require.NoError(t, kernels.ReshapeAndCache{KeyCache: caches[0].Pointer(), ValueCache: caches[1].Pointer(), Key: g.bytes(key).Pointer(), Value: g.bytes(value).Pointer(),
		Slots: g.bytes(text).Pointer(), Tokens: len(slots), KeyHeads: heads, HeadSize: size, BlockSize: block, KeyStride: stride, ValueStride: stride}.Launch(g.set, g.stream))
	for side, source := range [][]byte{key, value} {
		want := make([]byte, 2*blocks*block*heads*size)
		for i := range want {
			want[i] = 0xff
		}
		for token, slot := range slots {
			for head := range heads {
				if slot >= 0 {
					offset := 2 * ((int(slot)/block*heads+head)*block + int(slot)%block) * size
					copy(want[offset:offset+2*size], source[2*(token*stride+head*size):])
				}
			}
		}
		require.Equal(t, want, g.read(caches[side]))
	}
}

// Ensure that every 16-bit number becomes the same 8-bit number as on the CPU.
func TestReshapeAndCacheRoundsAsTheCPU(t *testing.T) {
	g := newGPU(t)
	const tokens, heads, size, block = 64, 8, 128, 16 // all numbers of 16 bits
	all := g.bytes(numbered(0, 1<<16))
	var slots []byte
	for i := range tokens {
		slots = binary.LittleEndian.AppendUint64(slots, uint64(tokens-1-i))
	}
	for _, kind := range types {
		for cache, want := range map[kernels.CacheType]attention.DType{kernels.CacheE4M3: attention.E4M3, kernels.CacheE5M2: attention.E5M2} {
			keys, values := g.empty(1<<16), g.empty(1<<16)
			require.NoError(t, kernels.ReshapeAndCache{Type: kind, Cache: cache, KeyCache: keys.Pointer(), ValueCache: values.Pointer(), Key: all.Pointer(), Value: all.Pointer(),
				Slots: g.bytes(slots).Pointer(), Tokens: tokens, KeyHeads: heads, HeadSize: size, BlockSize: block}.Launch(g.set, g.stream))
			got := g.read(keys)
			require.Equal(t, got, g.read(values))
			for i := range 1 << 16 {
				token, head, element := i/size/heads, i/size%heads, i%size
				slot := tokens - 1 - token
				number := half.FromF16(uint16(i))
				if kind == kernels.BF16 {
					number = half.FromBF16(uint16(i))
				}
				var rounded byte
				want.Store(unsafe.Pointer(&rounded), number)
				require.Equal(t, rounded, got[((slot/block*heads+head)*block+slot%block)*size+element], "%v of %v %#x (%v)", cache, kind, i, number)
			}
		}
	}
}

// Ensure that heads of queries and keys are normalized and rotated as in float64, and that keys and values are in their
// slots. The cache's types of 8 bits must contain the rounded keys and values of the other type.
func TestQKNormRopeAndCacheMatchesFloat64(t *testing.T) {
	g := newGPU(t)
	for _, c := range []struct {
		rotated                int // 0: nothing is rotated
		interleaved, normalize bool
	}{{24, false, true}, {16, false, false}, {20, false, true}, {24, true, false}, {16, true, true}, {0, false, true}, {0, false, false}} {
		for _, kind := range types {
			t.Run(fmt.Sprintf("%d of 24, interleaved %v, normalized %v, %v", c.rotated, c.interleaved, c.normalize, kind), func(t *testing.T) {
				x := newHeads(kind, c.rotated, c.interleaved, c.normalize)
				query, keys, values := x.run(g, kernels.CacheAuto)
				requireNear(t, kind, x.want[0], decode(kind, query))
				requireNear(t, kind, x.want[1], decode(kind, keys))
				require.Equal(t, encode(kind, x.want[2]), values)
				for cache, cpu := range map[kernels.CacheType]attention.DType{kernels.CacheE4M3: attention.E4M3, kernels.CacheE5M2: attention.E5M2} {
					same, keys8, values8 := x.run(g, cache)
					require.Equal(t, query, same)
					for i, wide := range [][]byte{keys, values} {
						for j, v := range decode(kind, wide) {
							var rounded byte
							cpu.Store(unsafe.Pointer(&rounded), float32(v))
							require.Equal(t, rounded, [][]byte{keys8, values8}[i][j], "%v", v)
						}
					}
				}
			})
		}
	}
}

// heads has the inputs of a launch of QKNormRopeAndCache, and what it should compute.
type heads struct {
	kind                  kernels.Type
	rotated               int
	interleaved           bool
	input, weights, table []float64
	normalized            bool
	want                  [3][]float64 // queries, and keys and values in the order of tokens and heads
}

const (
	headTokens, queryHeads, keyHeads, headElements = 3, 9, 2, 24
	headStride                                     = (queryHeads + 2*keyHeads) * headElements
)

var headPositions, headSlots = []int32{7, 0, 2}, []int64{17, 5, 33}

func newHeads(kind kernels.Type, rotated int, interleaved, normalized bool) *heads {
	x := &heads{kind: kind, rotated: rotated, interleaved: interleaved, normalized: normalized, input: random(kind, 1, headTokens*headStride),
		weights: random(kind, 2, headElements)}
	for p := range 8 {
		for _, f := range []func(float64) float64{math.Cos, math.Sin} {
			for i := range rotated / 2 {
				x.table = append(x.table, float64(float32(f(float64(p)/math.Pow(100, float64(2*i)/float64(rotated))))))
			}
		}
	}
	for token := range headTokens {
		for h := range queryHeads + 2*keyHeads {
			part := 0
			if h >= queryHeads {
				part = 1 + (h-queryHeads)/keyHeads
			}
			head := slices.Clone(x.input[token*headStride+h*headElements:][:headElements])
			if part < 2 {
				head = x.rotate(x.normalize(head), int(headPositions[token]))
			}
			x.want[part] = append(x.want[part], head...)
		}
	}
	return x
}

func (x *heads) normalize(head []float64) []float64 {
	if !x.normalized {
		return head
	}
	squares := 0.0
	for _, v := range head {
		squares += v * v
	}
	for i := range head {
		head[i] *= x.weights[i] / math.Sqrt(squares/headElements+1e-6)
	}
	return decode(x.kind, encode(x.kind, head))
}

func (x *heads) rotate(head []float64, position int) []float64 {
	want := slices.Clone(head)
	for i := range x.rotated / 2 {
		first, second := i, i+x.rotated/2
		if x.interleaved {
			first, second = 2*i, 2*i+1
		}
		cos, sin := x.table[position*x.rotated+i], x.table[position*x.rotated+x.rotated/2+i]
		want[first], want[second] = head[first]*cos-head[second]*sin, head[second]*cos+head[first]*sin
	}
	return want
}

// run returns the queries, and the keys and values of the tokens' slots.
func (x *heads) run(g *gpu, cache kernels.CacheType) (query, keys, values []byte) {
	g.t.Helper()
	const block, blocks = 16, 3
	size := cache.Bytes(x.kind)
	all := g.encoded(x.kind, x.input)
	caches := [2]*cuda.Memory{g.empty(size * blocks * block * keyHeads * headElements), g.empty(size * blocks * block * keyHeads * headElements)}
	var slots []byte
	for _, s := range headSlots {
		slots = binary.LittleEndian.AppendUint64(slots, uint64(s))
	}
	a := kernels.QKNormRopeAndCache{ReshapeAndCache: kernels.ReshapeAndCache{Type: x.kind, Cache: cache, KeyCache: caches[0].Pointer(), ValueCache: caches[1].Pointer(),
		Key: all.Pointer() + 2*queryHeads*headElements, Value: all.Pointer() + 2*(queryHeads+keyHeads)*headElements, Slots: g.bytes(slots).Pointer(), Tokens: headTokens,
		KeyHeads: keyHeads, HeadSize: headElements, BlockSize: block, KeyStride: headStride, ValueStride: headStride},
		Query: all.Pointer(), Heads: queryHeads, QueryStride: headStride, Epsilon: 1e-6, Rotated: x.rotated, Interleaved: x.interleaved}
	if x.rotated > 0 {
		a.Table, a.Positions = g.bytes(floats(x.table...)).Pointer(), g.bytes(words(headPositions...)).Pointer()
	}
	if x.normalized {
		weights := g.encoded(x.kind, x.weights)
		a.QueryNorm, a.KeyNorm = weights.Pointer(), weights.Pointer()
	}
	require.NoError(g.t, a.Launch(g.set, g.stream))
	rows := g.read(all)
	for token, slot := range headSlots {
		query = append(query, rows[2*token*headStride:][:2*queryHeads*headElements]...)
		for head := range keyHeads {
			place := ((int(slot)/block*keyHeads+head)*block + int(slot)%block) * headElements * size
			keys = append(keys, g.read(caches[0])[place:][:headElements*size]...)
			values = append(values, g.read(caches[1])[place:][:headElements*size]...)
		}
	}
	return query, keys, values
}

// requireNear allows the error of two roundings, of which the first may go to the other neighbour.
func requireNear(t *testing.T, kind kernels.Type, want, got []float64) {
	t.Helper()
	unit := map[kernels.Type]float64{kernels.F16: 0x1p-10, kernels.BF16: 0x1p-7}[kind]
	require.Len(t, got, len(want))
	largest := 0.0
	for _, v := range want {
		largest = max(largest, math.Abs(v))
	}
	for i := range want {
		require.InDelta(t, want[i], got[i], unit*largest, "element %d", i)
	}
}

// layers returns two arrays of blocks, and the arguments that CopyBlocks and SwapBlocks need for them.
func layers(g *gpu, blocks, bytes int) (arrays [2]*cuda.Memory, all kernels.Blocks) {
	var pointers []byte
	for i := range arrays {
		arrays[i] = g.bytes(numbered(10000*i, blocks*bytes/2))
		pointers = binary.LittleEndian.AppendUint64(pointers, uint64(arrays[i].Pointer()))
	}
	return arrays, kernels.Blocks{Arrays: g.bytes(pointers).Pointer(), Count: len(arrays), BlockBytes: bytes}
}

func TestCopyBlocks(t *testing.T) {
	g := newGPU(t)
	for _, bytes := range []int{16, 4096, 16000, 20000} { // less and more than a round of the threads, and a part of one
		arrays, all := layers(g, 5, bytes)
		require.NoError(t, kernels.CopyBlocks{Blocks: all, Mapping: g.bytes(words(1, 3, 0, 4)).Pointer(), Pairs: 2}.Launch(g.set, g.stream))
		for i, a := range arrays {
			want := numbered(10000*i, 5*bytes/2)
			copy(want[3*bytes:], want[bytes:2*bytes])
			copy(want[4*bytes:], want[:bytes])
			require.Equal(t, want, g.read(a))
		}
	}
}

// Ensure that blocks can return from the host to other places on the GPU. Blocks outside the mapping must not change.
func TestSwapBlocksOutAndIn(t *testing.T) {
	g := newGPU(t)
	const bytes = 20000 // more than a round of the threads, and a part of one
	arrays, all := layers(g, 5, bytes)
	host, err := g.context.AllocPinned(3 * 2 * bytes)
	require.NoError(t, err)
	for i := range host.Bytes() {
		host.Bytes()[i] = 0xff
	}
	t.Cleanup(func() { require.NoError(t, host.Close()) })
	require.NoError(t, kernels.SwapBlocks{Blocks: all, Host: host.Pointer(), Mapping: g.bytes(words(1, 2, 4, 0)).Pointer(), Pairs: 2}.Launch(g.set, g.stream))
	require.NoError(t, g.stream.Synchronize())
	for i := range arrays {
		original := numbered(10000*i, 5*bytes/2)
		require.Equal(t, original[bytes:2*bytes], host.Bytes()[(2*2+i)*bytes:][:bytes])
		require.Equal(t, original[4*bytes:], host.Bytes()[i*bytes:][:bytes])
		require.Equal(t, byte(0xff), host.Bytes()[(1*2+i)*bytes], "a block of the host that nothing was copied to")
	}
	require.NoError(t, kernels.SwapBlocks{Blocks: all, Host: host.Pointer(), Mapping: g.bytes(words(2, 0, 0, 3)).Pointer(), Pairs: 2, In: true}.Launch(g.set, g.stream))
	for i, a := range arrays {
		want := numbered(10000*i, 5*bytes/2)
		copy(want, want[bytes:2*bytes])
		copy(want[3*bytes:], want[4*bytes:])
		require.Equal(t, want, g.read(a))
	}
}

func TestKernelsRefuseShapesThatTheyCannotHave(t *testing.T) {
	g := newGPU(t)
	for _, c := range []struct {
		launch interface {
			Launch(*kernels.Set, *cuda.Stream) error
		}
		says string
	}{
		{kernels.RMSNorm{Tokens: 1, N: 12}, "rms_norm of rows of 12 elements: the length must be a multiple of 8"},
		{kernels.RMSNorm{Tokens: 1, N: 16, Stride: 20}, "rms_norm with 20 elements from a token to the next: the number must be 0, or a multiple of 8 and at least 16"},
		{kernels.LayerNorm{Rows: 1, N: 0}, "layer_norm of rows of 0 elements: the length must be a multiple of 8"},
		{kernels.Activation{Function: kernels.ReLU, Rows: 1, N: 3}, "relu of rows of 3 elements: the length must be a multiple of 8"},
		{kernels.Activation{Function: "tanh", Rows: 1, N: 8, Out: 16, In: 16}, "there is no kernel tanh_f16"},
		{kernels.QKNormRopeAndCache{ReshapeAndCache: kernels.ReshapeAndCache{Tokens: 1, KeyHeads: 1, HeadSize: 64, BlockSize: 16, KeyCache: 16, ValueCache: 16, Key: 16, Value: 16, Slots: 8},
			Heads: 1, Query: 16, Table: 4, Rotated: 65}, "fused_qk_norm_rope_and_cache that rotates 65 of the 64 elements of a head: the number must be even and not more than the head has"},
		{kernels.Embedding{Rows: 1, N: 4}, "embedding of rows of 4 elements: the length must be a multiple of 8"},
		{kernels.Sample{Rows: 1}, "sample of rows of 0 logits"},
		{kernels.ReshapeAndCache{Tokens: 1, HeadSize: 20}, "reshape_and_cache of heads of 20 elements: the size must be a multiple of 8"},
		{kernels.ReshapeAndCache{Tokens: 1, HeadSize: 64}, "reshape_and_cache with 0 key heads and blocks of 0 tokens"},
		{kernels.CopyBlocks{Blocks: kernels.Blocks{Count: 1, BlockBytes: 8}, Pairs: 1}, "copy_blocks of blocks of 8 bytes: the number must be a multiple of 16"},
		{kernels.SwapBlocks{Blocks: kernels.Blocks{Count: 70000, BlockBytes: 16}, Pairs: 1}, "swap_blocks in 70000 arrays: there may be 1 to 65535"},
		{kernels.SwapBlocks{Blocks: kernels.Blocks{Count: 1, BlockBytes: 16}, Pairs: 1}, "swap_blocks: Arrays is 0: it must be an address"},
	} {
		require.EqualError(t, c.launch.Launch(g.set, g.stream), c.says)
	}
}
