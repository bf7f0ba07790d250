package kernels

import "llmmemory/internal/serving/cuda"

// ReshapeAndCache writes the keys and values of tokens to their slots. device.h describes the layout of blocks. A slot
// is an int64. A token with a negative slot is not written. Two tokens must not have the same slot. If the cache's type
// is E4M3 or E5M2, numbers are rounded to the nearest number of this type, ties to even. Numbers that are too large
// become the largest finite one.
type ReshapeAndCache struct {
	Type                                    Type      // of Key and Value
	Cache                                   CacheType // of KeyCache and ValueCache
	KeyCache, ValueCache, Key, Value, Slots cuda.Pointer
	Tokens                                  int
	KeyHeads, HeadSize, BlockSize           int
	KeyStride, ValueStride                  int // elements from a token to the next; 0 means KeyHeads * HeadSize
}

// Launch puts the kernel into a stream.
func (a ReshapeAndCache) Launch(set *Set, s *cuda.Stream) error {
	c := &checker{kernel: "reshape_and_cache"}
	keyStride, valueStride := a.check(c)
	if !c.ready() {
		return c.err
	}
	threads := min(256, (a.KeyHeads*a.HeadSize/8+31)/32*32)
	name := "reshape_and_cache_16"
	if a.Cache != CacheAuto {
		name = "reshape_and_cache_fp8_" + a.Type.String()
	}
	return set.launch(s, name, cuda.Shape{X: a.Tokens, Threads: threads}, a.KeyCache, a.ValueCache, a.Key, a.Value, a.Slots,
		int32(a.KeyHeads), int32(a.HeadSize), int32(a.BlockSize), keyStride, valueStride, a.Cache.fractionBits())
}

// check checks the arguments, and returns the strides.
func (a ReshapeAndCache) check(c *checker) (keyStride, valueStride uint64) {
	c.keep(a.Type.check(c.kernel))
	c.keep(a.Cache.check(c.kernel))
	c.require(a.HeadSize > 0 && a.HeadSize%8 == 0, " of heads of %d elements: the size must be a multiple of 8", a.HeadSize)
	c.require(a.KeyHeads > 0 && a.BlockSize > 0, " with %d key heads and blocks of %d tokens", a.KeyHeads, a.BlockSize)
	keyStride, valueStride = c.stride(a.KeyStride, a.KeyHeads*a.HeadSize, 8), c.stride(a.ValueStride, a.KeyHeads*a.HeadSize, 8)
	c.count(a.Tokens, "rows")
	c.addresses(16, operand{"KeyCache", a.KeyCache}, operand{"ValueCache", a.ValueCache}, operand{"Key", a.Key}, operand{"Value", a.Value})
	c.addresses(8, operand{"Slots", a.Slots})
	return keyStride, valueStride
}

// QKNormRopeAndCache normalizes the heads of queries and keys (RMS), rotates them, and writes keys and values to their
// slots as ReshapeAndCache does. Queries are replaced by the results. Keys are not: their results are in the cache only.
//
// Each head has Rotated/2 pairs of elements. For each position, Table contains the cosine of each pair, and then the sine
// of each pair. These are float32 numbers, and all heads use the same ones. The heads of a token are contiguous.
type QKNormRopeAndCache struct {
	ReshapeAndCache
	Query              cuda.Pointer
	Heads, QueryStride int          // of queries; a stride of 0 means Heads * HeadSize
	QueryNorm, KeyNorm cuda.Pointer // weights of HeadSize elements of Type, or 0
	Epsilon            float32
	Positions          cuda.Pointer // int32 of each token
	Table              cuda.Pointer // or 0: nothing is rotated
	Rotated            int          // elements of a head
	Interleaved        bool         // a pair is elements 2i and 2i+1; if false, i and i + Rotated/2
}

// Sizes of reshape_and_cache.cu.
const (
	headWarps   = 8   // heads of a block of threads
	maxHeadSize = 256 // elements of a head
)

// heads has the fields of struct Heads in reshape_and_cache.cu.
type heads struct {
	query, key, value, queryNorm, keyNorm cuda.Pointer
	positions, table                      cuda.Pointer
	keyCache, valueCache, slots           cuda.Pointer
	queryStride, keyStride, valueStride   uint64
	heads, keyHeads, headSize, blockSize  int32
	rotated, interleaved, fraction        int32
	epsilon                               float32
}

// Launch puts the kernel into a stream.
func (a QKNormRopeAndCache) Launch(set *Set, s *cuda.Stream) error {
	c := &checker{kernel: "fused_qk_norm_rope_and_cache"}
	keyStride, valueStride := a.ReshapeAndCache.check(c)
	c.require(a.Heads > 0 && a.HeadSize <= maxHeadSize, " of %d heads of %d elements: there must be heads, of at most %d elements", a.Heads, a.HeadSize, maxHeadSize)
	queryStride := c.stride(a.QueryStride, a.Heads*a.HeadSize, 8)
	c.addresses(16, operand{"Query", a.Query})
	c.optional(16, operand{"QueryNorm", a.QueryNorm}, operand{"KeyNorm", a.KeyNorm})
	if a.Table != 0 {
		c.require(a.Rotated >= 2 && a.Rotated%2 == 0 && a.Rotated <= a.HeadSize, " that rotates %d of the %d elements of a head: the number must be even and not more than the head has", a.Rotated, a.HeadSize)
		c.addresses(4, operand{"Positions", a.Positions}, operand{"Table", a.Table})
	}
	if !c.ready() {
		return c.err
	}
	arguments := heads{query: a.Query, key: a.Key, value: a.Value, queryNorm: a.QueryNorm, keyNorm: a.KeyNorm, positions: a.Positions, table: a.Table,
		keyCache: a.KeyCache, valueCache: a.ValueCache, slots: a.Slots, queryStride: queryStride, keyStride: keyStride, valueStride: valueStride,
		heads: int32(a.Heads), keyHeads: int32(a.KeyHeads), headSize: int32(a.HeadSize), blockSize: int32(a.BlockSize), rotated: int32(a.Rotated),
		fraction: a.Cache.fractionBits(), epsilon: a.Epsilon}
	if a.Interleaved {
		arguments.interleaved = 1
	}
	name := "fused_qk_norm_rope_and_cache_" + a.Type.String()
	if a.Cache != CacheAuto {
		name = "fused_qk_norm_rope_and_cache_fp8_" + a.Type.String()
	}
	return set.launch(s, name, cuda.Shape{X: a.Tokens, Y: ceil(a.Heads+2*a.KeyHeads, headWarps), Threads: 32 * headWarps}, arguments)
}

// Blocks describes the arrays of keys and the arrays of values of all layers. CopyBlocks and SwapBlocks move blocks in
// these arrays.
type Blocks struct {
	Arrays     cuda.Pointer // a pointer (8 bytes) for each array
	Count      int          // of arrays
	BlockBytes int          // of a block in one array, a multiple of 16
}

func (b Blocks) check(kernel string, mapping cuda.Pointer, pairs int) *checker {
	c := &checker{kernel: kernel}
	c.require(b.BlockBytes > 0 && b.BlockBytes%16 == 0, " of blocks of %d bytes: the number must be a multiple of 16", b.BlockBytes)
	c.require(b.Count > 0 && b.Count <= 65535, " in %d arrays: there may be 1 to 65535", b.Count)
	c.count(pairs, "pairs")
	c.addresses(8, operand{"Arrays", b.Arrays})
	c.addresses(4, operand{"Mapping", mapping})
	return c
}

func (b Blocks) shape(pairs int) cuda.Shape { return cuda.Shape{X: pairs, Y: b.Count, Threads: 256} }

// CopyBlocks copies blocks inside the GPU. Mapping is the address of an array with a pair of int32 for each copy: the
// source block and the destination block. The field Pairs is the number of copies. A block must not be written twice,
// or be both read and written.
type CopyBlocks struct {
	Blocks
	Mapping cuda.Pointer
	Pairs   int
}

// Launch puts the kernel into a stream.
func (a CopyBlocks) Launch(set *Set, s *cuda.Stream) error {
	if c := a.check("copy_blocks", a.Mapping, a.Pairs); !c.ready() {
		return c.err
	}
	return set.launch(s, "copy_blocks", a.shape(a.Pairs), a.Arrays, a.Mapping, uint64(a.BlockBytes))
}

// SwapBlocks copies blocks between the GPU and the pinned memory Host. Each array on the GPU contains a part of a
// block. In Host, the parts of a block are contiguous, in the order of the arrays. Mapping is the address of an array
// with a pair of int32 for each copy: the source block and the destination block. The field Pairs is the number of
// copies. One kernel makes all copies. The driver would need a separate call for each part of each block.
type SwapBlocks struct {
	Blocks
	Host    cuda.Pointer
	Mapping cuda.Pointer
	Pairs   int
	In      bool // from the host to the GPU
}

// Launch puts the kernel into a stream.
func (a SwapBlocks) Launch(set *Set, s *cuda.Stream) error {
	c := a.check("swap_blocks", a.Mapping, a.Pairs)
	c.addresses(16, operand{"Host", a.Host})
	if !c.ready() {
		return c.err
	}
	name := "swap_blocks_out"
	if a.In {
		name = "swap_blocks_in"
	}
	return set.launch(s, name, a.shape(a.Pairs), a.Arrays, a.Host, a.Mapping, uint64(a.BlockBytes))
}
