package attention

import "unsafe"

// TileTokens is how many tokens StoreTile takes.
const TileTokens = tileTokens

// Tiled says whether StoreTile can write: the layout has tiles of 16 tokens.
func (s *Shape) Tiled() bool { return s.Layout == LayoutTile && s.BlockSize%tileTokens == 0 }

// StoreTile writes keys of 16 tokens, from a place on that is a multiple of 16.
// They are rows of head size numbers, already divided by their scales; room is
// scratch memory of as many numbers.
func (c *Cache) StoreTile(block, head, place int, keys, room []float32) {
	fastest.transpose(room, keys, c.HeadSize)
	c.DType.StoreAll(unsafe.Pointer(&c.Key[c.KeyOffset(block, head, place, 0)]), room[:tileTokens*c.HeadSize])
}
