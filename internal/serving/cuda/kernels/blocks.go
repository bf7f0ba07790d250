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
	c := checker{kernel: "reshape_and_cache"}
	c.keep(a.Type.check(c.kernel))
	c.keep(a.Cache.check(c.kernel))
	c.require(a.HeadSize > 0 && a.HeadSize%8 == 0, " of heads of %d elements: the size must be a multiple of 8", a.HeadSize)
	c.require(a.KeyHeads > 0 && a.BlockSize > 0, " with %d key heads and blocks of %d tokens", a.KeyHeads, a.BlockSize)
	keyStride, valueStride := c.stride(a.KeyStride, a.KeyHeads*a.HeadSize, 8), c.stride(a.ValueStride, a.KeyHeads*a.HeadSize, 8)
	c.count(a.Tokens, "rows")
	c.addresses(16, operand{"KeyCache", a.KeyCache}, operand{"ValueCache", a.ValueCache}, operand{"Key", a.Key}, operand{"Value", a.Value})
	c.addresses(8, operand{"Slots", a.Slots})
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
