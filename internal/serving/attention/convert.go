package attention

import (
	"unsafe"
)

// Convert copies all blocks of a cache to another cache with the same block size, heads and head size. Layout and type
// may differ. Numbers are rounded to nearest; with the same type and scale, they keep their bits. Int8 can be
// converted only to Int8, with its scales.
func Convert(to, from *Cache) error {
	if err := from.Check(); err != nil {
		return err
	}
	if err := to.Check(); err != nil {
		return err
	}
	if to.NumBlocks < from.NumBlocks || to.BlockSize != from.BlockSize || to.NumKVHeads != from.NumKVHeads ||
		to.HeadSize != from.HeadSize {
		return badArgument("%d blocks of %d tokens and %d heads of %d elements do not fit into %d blocks of %d and %d of "+
			"%d", from.NumBlocks, from.BlockSize, from.NumKVHeads, from.HeadSize, to.NumBlocks, to.BlockSize, to.NumKVHeads,
			to.HeadSize)
	}
	if (to.DType == Int8) != (from.DType == Int8) {
		return badArgument("%v cannot be converted to %v: only int8 has scales of tokens", from.DType, to.DType)
	}
	if to.OverlapsBlocks(from) {
		return badArgument("%w: the blocks to be written and to be read", ErrOverlap)
	}
	fromKey, fromValue := from.Factors()
	toKey, toValue := to.Factors()
	keys, values := fromKey/toKey, fromValue/toValue
	for block := range from.NumBlocks {
		for head := range from.NumKVHeads {
			convertHead(to, from, block, head, keys, values)
		}
	}
	return nil
}

func convertHead(to, from *Cache, block, head int, keys, values float32) {
	for token := range from.BlockSize {
		for i := range from.HeadSize {
			dst, src := to.Key[to.KeyOffset(block, head, token, i):], from.Key[from.KeyOffset(block, head, token, i):]
			convertNumber(to, from, dst, src, keys)
			dst, src = to.Value[to.ValueOffset(block, head, token, i):], from.Value[from.ValueOffset(block, head, token, i):]
			convertNumber(to, from, dst, src, values)
		}
	}
	if from.DType == Int8 {
		copy(to.Scales(to.KeyScales, block, head), from.Scales(from.KeyScales, block, head))
		copy(to.Scales(to.ValueScales, block, head), from.Scales(from.ValueScales, block, head))
	}
}

func convertNumber(to, from *Cache, dst, src []byte, factor float32) {
	if to.DType == from.DType && factor == 1 {
		copy(dst, src[:from.DType.Size()])
		return
	}
	to.DType.Store(unsafe.Pointer(&dst[0]), from.DType.Load(unsafe.Pointer(&src[0]))*factor)
}
