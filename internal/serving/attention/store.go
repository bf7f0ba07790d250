package attention

import "unsafe"

// TileTokens is the number of tokens of a tile.
const TileTokens = tileTokens

// Tiled reports whether blocks consist of whole tiles, as StoreTile, CopyKeys and CopyValues require.
func (s *Shape) Tiled() bool { return s.Layout == LayoutTile && s.BlockSize%tileTokens == 0 }

// StoreTile writes the keys of a tile, whose place in the block is a multiple of 16. keys has 16 rows of head size
// numbers, already divided by their scales. scratch is memory of the same size.
func (c *Cache) StoreTile(block, head, place int, keys, scratch []float32) {
	fastest.transpose(unsafe.Pointer(&scratch[0]), unsafe.Pointer(&keys[0]), 4*c.HeadSize, c.HeadSize, 4, false)
	c.DType.StoreAll(unsafe.Pointer(&c.Key[c.KeyOffset(block, head, place, 0)]), scratch[:tileTokens*c.HeadSize])
}

// CopyKeys writes the keys of a tile unchanged: 16 rows of t from row on. They have the cache's type, of 4 or 2 bytes.
// If past, it bypasses the processor's caches, for keys that are not read again soon.
func (c *Cache) CopyKeys(block, head, place int, t *Tensor, row int, past bool) {
	bytes := c.DType.Size()
	out := unsafe.Pointer(&c.Key[c.KeyOffset(block, head, place, 0)])
	fastest.transpose(out, t.At(row, head*c.HeadSize), t.Stride*bytes, c.HeadSize, bytes, past && wholeVectors(out))
}

// CopyValues does the same for values.
func (c *Cache) CopyValues(block, head, place int, t *Tensor, row int, past bool) {
	bytes := c.DType.Size()
	out := unsafe.Pointer(&c.Value[c.ValueOffset(block, head, place, 0)])
	fastest.copyRows(out, t.At(row, head*c.HeadSize), t.Stride*bytes, tileTokens, c.HeadSize*bytes, past &&
		wholeVectors(out))
}

// wholeVectors reports whether p is aligned for writes that bypass the caches.
func wholeVectors(p unsafe.Pointer) bool { return uintptr(p)%32 == 0 }
