package kvstore

import "llmmemory/internal/attention"

// ReadBlock copies a device block of all layers to memory of Config.BlockBytes bytes. It may be called while
// the store is used, as long as nothing writes to the block.
func (s *Store) ReadBlock(id int32, to []byte) {
	for i := range s.device.layers {
		for _, part := range parts(&s.device.layers[i], id) {
			to = to[copy(to, part):]
		}
	}
}

// WriteBlock copies memory that ReadBlock has filled to a device block. It may be called while the store is
// used, as long as nothing else reads or writes the block.
func (s *Store) WriteBlock(id int32, from []byte) {
	for i := range s.device.layers {
		for _, part := range parts(&s.device.layers[i], id) {
			from = from[copy(part, from):]
		}
	}
}

// parts are the memory of a block in one layer.
func parts(c *attention.Cache, id int32) [][]byte {
	of := func(all []byte, size int) []byte { return all[int(id)*size:][:size] }
	all := [][]byte{of(c.Key, c.BlockStride)}
	if c.Layout == attention.LayoutTile {
		return all // values and scales lie between the keys
	}
	all = append(all, of(c.Value, c.BlockStride))
	if c.DType == attention.Int8 {
		all = append(all, of(c.KeyScales, c.ScaleBlockStride), of(c.ValueScales, c.ScaleBlockStride))
	}
	return all
}
