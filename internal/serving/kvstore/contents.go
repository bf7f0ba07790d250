package kvstore

import (
	"unsafe"

	"llmmemory/internal/invariants"
	"llmmemory/internal/serving/attention"
)

// ReadBlock copies a device block of all layers to dst. The length of dst must be Config.BlockBytes. ReadBlock may be
// called while the store is in use, if nothing writes to the block meanwhile.
func (s *Store) ReadBlock(id int32, dst []byte) {
	for i := range s.device.layers {
		for _, piece := range pieces(&s.device.layers[i], id) {
			dst = dst[copy(dst, piece):]
		}
	}
}

// WriteBlock copies src to a device block of all layers. The bytes in src must come from ReadBlock. WriteBlock may be
// called while the store is in use, if nothing reads or writes the block meanwhile.
func (s *Store) WriteBlock(id int32, src []byte) {
	for i := range s.device.layers {
		for _, piece := range pieces(&s.device.layers[i], id) {
			src = src[copy(piece, src):]
		}
	}
}

// Poison overwrites device blocks in all layers with the byte 0xff. These bytes are NaN in every floating-point type
// and in the scales of Int8. A result computed from a freed block is then NaN. Without the build tag invariants, Poison
// does nothing. It skips invalid block numbers.
func (s *Store) Poison(blocks []int32) {
	if !invariants.Enabled {
		return
	}
	for _, id := range blocks {
		if uint(id) >= uint(s.device.blocks) {
			continue
		}
		for i := range s.device.layers {
			for _, piece := range pieces(&s.device.layers[i], id) {
				fill(piece)
			}
		}
	}
}

func fill(piece []byte) {
	for i := range piece {
		piece[i] = 0xff
	}
}

func pieces(c *attention.Cache, id int32) (p [4][]byte) {
	block := func(memory []byte, size int) []byte { return memory[int(id)*size:][:size] }
	p[0] = block(c.Key, c.BlockStride)
	if c.Layout == attention.LayoutTile || c.Latent > 0 {
		return p // values and scales lie between the keys, or values are parts of keys
	}
	p[1] = block(c.Value, c.BlockStride)
	if c.DType == attention.Int8 {
		p[2], p[3] = block(c.KeyScales, c.ScaleBlockStride), block(c.ValueScales, c.ScaleBlockStride)
	}
	return p
}

// State returns the device block of a layer as the memory of a state (vLLM's Mamba state). The layout must be
// LayoutTile, in which the bytes of a block are contiguous. The memory is valid until Close.
func (s *Store) State(layer int, block int32) []float32 {
	c := &s.device.layers[layer]
	page := c.Key[int(block)*c.BlockStride:][:c.BlockStride]
	return unsafe.Slice((*float32)(unsafe.Pointer(&page[0])), len(page)/4)
}
