package kvstore

import (
	"llmmemory/internal/attention"
	"llmmemory/internal/invariants"
)

// Poison overwrites blocks of the device in all layers with the byte 0xff, which
// is NaN in every floating-point type and in the scales of Int8. A result computed
// from a freed block is then NaN. Poison does nothing without the build tag
// invariants, and skips numbers that are no blocks.
func (s *Store) Poison(blocks []int32) {
	if !invariants.Enabled {
		return
	}
	for _, id := range blocks {
		if uint(id) >= uint(s.device.blocks) {
			continue
		}
		for i := range s.device.layers {
			ruin(&s.device.layers[i], int(id))
		}
	}
}

// ruin overwrites a block of a layer.
func ruin(c *attention.Cache, block int) {
	fill(c.Key, block, c.BlockStride)
	if c.Layout == attention.LayoutTile {
		return // values and scales lie between the keys
	}
	fill(c.Value, block, c.BlockStride)
	fill(c.KeyScales, block, c.ScaleBlockStride)
	fill(c.ValueScales, block, c.ScaleBlockStride)
}

func fill(data []byte, block, size int) {
	for i := block * size; i < (block+1)*size && i < len(data); i++ {
		data[i] = 0xff
	}
}
