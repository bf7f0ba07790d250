package attention

import "unsafe"

// Layout is the order of a block's elements in memory.
type Layout uint8

const (
	// LayoutTile is the layout that this package reads fastest if the block size is a multiple of 16. A block is
	//
	//	for each KV head: keys [block size / w, head size, w], then values [block size, head size]
	//
	// The width w is the largest power of 2, up to 16, that divides the block size. The keys of w tokens are stored
	// together: first element 0 of each of these keys, then element 1 of each, and so on. If w is 16, the kernels
	// compute the logits of 16 tokens in the lanes of one register, and need not add the lanes. With Int8, the values
	// of each head are followed by the float32 scales of its keys, then of its values.
	LayoutTile Layout = iota

	// LayoutVLLM is vLLM's layout. x is the number of elements in 16 bytes:
	//
	//	keys   [blocks, kv heads, head size / x, block size, x]
	//	values [blocks, kv heads, head size, block size]
	LayoutVLLM

	// LayoutFlash is FlashAttention's layout: [2, blocks, block size, kv heads, head size].
	LayoutFlash

	layouts
)

var layoutNames = [...]string{"tile", "vllm", "flash"}

// String returns "tile", "vllm" or "flash".
func (l Layout) String() string {
	if l >= layouts {
		return "unknown layout"
	}
	return layoutNames[l]
}

// TileTokens is the number of tokens of a tile.
const TileTokens = 16

// tile returns w of LayoutTile.
func (s *Shape) tile() int {
	return min(TileTokens, s.BlockSize&-s.BlockSize)
}

// keyIndex returns the position of the given element of a token's key. It counts elements from the beginning of the
// head's keys in the block.
func (s *Shape) keyIndex(token, element int) int {
	switch s.Layout {
	case LayoutVLLM:
		x := 16 / s.DType.Size()
		return (element/x*s.BlockSize+token)*x + element%x
	case LayoutFlash:
		return token*s.NumKVHeads*s.HeadSize + element
	}
	w := s.tile()
	return (token/w*s.HeadSize+element)*w + token%w
}

// valueIndex returns the position of the given element of a token's value. It counts elements from the beginning of the
// head's values in the block.
func (s *Shape) valueIndex(token, element int) int {
	switch s.Layout {
	case LayoutVLLM:
		return element*s.BlockSize + token
	case LayoutFlash:
		return token*s.NumKVHeads*s.HeadSize + element
	}
	return token*s.HeadSize + element
}

// headSpan returns the number of bytes that the keys of one head in one block span, from the first element to the end
// of the last. Values span the same number. With LayoutFlash, the span includes elements of other heads.
func (c *Cache) headSpan() int {
	elements := c.BlockSize * c.HeadSize
	if c.Layout == LayoutFlash {
		elements = (c.BlockSize-1)*c.NumKVHeads*c.HeadSize + c.HeadSize
	}
	return elements * c.DType.Size()
}

// BlockBytes returns the bytes of a block in one layer: keys, values unless they are latent and, with Int8, scales.
func (s *Shape) BlockBytes() int {
	if s.Latent > 0 {
		return s.BlockSize * s.HeadSize * s.DType.Size()
	}
	n := 2 * s.BlockSize * s.NumKVHeads * s.HeadSize * s.DType.Size()
	if s.DType == Int8 {
		n += 2 * 4 * s.BlockSize * s.NumKVHeads
	}
	return n
}

// NewCache returns a Cache with as many blocks as fit into memory, without gaps. LayoutTile keeps all parts of a block
// together; the other layouts have all keys, then all values, then the scales.
func NewCache(s Shape, memory []byte) (Cache, error) {
	c := Cache{Shape: s}
	if err := s.Check(); err != nil {
		return c, err
	}
	c.NumBlocks = len(memory) / s.BlockBytes()
	if c.NumBlocks == 0 {
		return c, badArgument("%d bytes of memory hold no block of %d bytes", len(memory), s.BlockBytes())
	}
	if s.Layout == LayoutTile {
		c.tile(memory)
	} else {
		c.split(memory)
	}
	return c, c.Check()
}

func (c *Cache) tile(memory []byte) {
	half := c.BlockSize * c.HeadSize * c.DType.Size()
	c.BlockStride, c.HeadStride = c.BlockBytes(), c.BlockBytes()/c.NumKVHeads
	c.Key, c.Value = memory, memory[half:]
	if c.DType == Int8 {
		c.ScaleBlockStride, c.ScaleHeadStride = c.BlockStride, c.HeadStride
		c.KeyScales, c.ValueScales = memory[2*half:], memory[2*half+4*c.BlockSize:]
	}
}

func (c *Cache) split(memory []byte) {
	part := c.BlockSize * c.NumKVHeads * c.HeadSize * c.DType.Size()
	c.BlockStride, c.HeadStride = part, part/c.NumKVHeads
	if c.Layout == LayoutFlash {
		c.HeadStride = c.HeadSize * c.DType.Size()
	}
	if c.Latent > 0 {
		c.Key, c.Value = memory[:part*c.NumBlocks], memory[:part*c.NumBlocks]
		return
	}
	c.Key, c.Value = memory[:part*c.NumBlocks], memory[part*c.NumBlocks:2*part*c.NumBlocks]
	if c.DType == Int8 {
		c.ScaleBlockStride, c.ScaleHeadStride = 4*c.BlockSize*c.NumKVHeads, 4*c.BlockSize
		scales := memory[2*part*c.NumBlocks:]
		n := c.ScaleBlockStride * c.NumBlocks
		c.KeyScales, c.ValueScales = scales[:n], scales[n:2*n]
	}
}

// KeyOffset returns the offset of an element in Key, in bytes.
func (c *Cache) KeyOffset(block, head, token, element int) int {
	return c.start(block, head) + c.keyIndex(token, element)*c.DType.Size()
}

// ValueOffset returns the offset of an element in Value, in bytes.
func (c *Cache) ValueOffset(block, head, token, element int) int {
	return c.start(block, head) + c.valueIndex(token, element)*c.DType.Size()
}

// Scales returns the scales of the tokens of a block and head. data is KeyScales or ValueScales; the type must be Int8.
func (c *Cache) Scales(data []byte, block, head int) []float32 {
	offset := block*c.ScaleBlockStride + head*c.ScaleHeadStride
	return unsafe.Slice((*float32)(unsafe.Pointer(&data[offset])), c.BlockSize)
}

func (c *Cache) start(block, head int) int { return block*c.BlockStride + head*c.HeadStride }

// Tiled reports whether blocks consist of whole tiles, as StoreTile, CopyKeys and CopyValues require.
func (s *Shape) Tiled() bool { return s.Layout == LayoutTile && s.BlockSize%TileTokens == 0 }

// StoreTile writes the keys of 16 tokens to a tile. offset is the index of the tile's first token in the block, a
// multiple of 16. keys has 16 rows of head size numbers, which are already divided by their scales. scratch is
// memory of the same size.
func (c *Cache) StoreTile(block, head, offset int, keys, scratch []float32) {
	fastest.transpose(unsafe.Pointer(&scratch[0]), unsafe.Pointer(&keys[0]), 4*c.HeadSize, c.HeadSize, 4, false)
	c.DType.StoreAll(unsafe.Pointer(&c.Key[c.KeyOffset(block, head, offset, 0)]), scratch[:TileTokens*c.HeadSize])
}

// CopyKeys copies the keys of 16 tokens, rows [row, row+16) of t, to a tile. t must have the same type as the cache,
// and the type must have 4 or 2 bytes. offset is the index of the tile's first token in the block. If bypass is true,
// CopyKeys may bypass the processor's caches. This is faster for keys that are not read again soon.
func (c *Cache) CopyKeys(block, head, offset int, t *Tensor, row int, bypass bool) {
	bytes := c.DType.Size()
	out := unsafe.Pointer(&c.Key[c.KeyOffset(block, head, offset, 0)])
	fastest.transpose(out, t.At(row, head*c.HeadSize), t.Stride*bytes, c.HeadSize, bytes, bypass && wholeVectors(out))
}

// CopyValues does for values what CopyKeys does for keys.
func (c *Cache) CopyValues(block, head, offset int, t *Tensor, row int, bypass bool) {
	bytes := c.DType.Size()
	out := unsafe.Pointer(&c.Value[c.ValueOffset(block, head, offset, 0)])
	fastest.copyRows(out, t.At(row, head*c.HeadSize), t.Stride*bytes, TileTokens, c.HeadSize*bytes, bypass &&
		wholeVectors(out))
}

// wholeVectors reports whether p is aligned for writes that bypass the caches.
func wholeVectors(p unsafe.Pointer) bool { return uintptr(p)%32 == 0 }
