package attention

import (
	"unsafe"
)

// Convert copies all blocks of source to target. Both caches must have the same block size, heads and head size. target
// must have at least as many blocks, in other memory. Layout and type may differ. Numbers are stored by DType.Store;
// with the same type and scale, they keep their bits. Int8 can be converted only to Int8, with its scales.
func Convert(target, source *Cache) error {
	if err := source.Check(); err != nil {
		return err
	}
	if err := target.Check(); err != nil {
		return err
	}
	if target.NumBlocks < source.NumBlocks || target.BlockSize != source.BlockSize ||
		target.NumKVHeads != source.NumKVHeads || target.HeadSize != source.HeadSize || target.Latent != source.Latent {
		return badArgument("%d blocks of %d tokens and %d heads of %d elements do not fit into %d blocks of %d and %d of "+
			"%d", source.NumBlocks, source.BlockSize, source.NumKVHeads, source.HeadSize, target.NumBlocks,
			target.BlockSize, target.NumKVHeads, target.HeadSize)
	}
	if (target.DType == Int8) != (source.DType == Int8) {
		return badArgument("%v cannot be converted to %v: only int8 has scales of tokens", source.DType, target.DType)
	}
	if target.OverlapsBlocks(source) {
		return badArgument("%w: the blocks to be written and to be read", ErrOverlap)
	}
	sourceKey, sourceValue := source.Factors()
	targetKey, targetValue := target.Factors()
	keys, values := sourceKey/targetKey, sourceValue/targetValue
	for block := range source.NumBlocks {
		for head := range source.NumKVHeads {
			convertHead(target, source, block, head, keys, values)
		}
	}
	return nil
}

func convertHead(target, source *Cache, block, head int, keys, values float32) {
	for token := range source.BlockSize {
		for i := range source.HeadSize {
			dst := target.Key[target.KeyOffset(block, head, token, i):]
			src := source.Key[source.KeyOffset(block, head, token, i):]
			convertNumber(target, source, dst, src, keys)
			dst = target.Value[target.ValueOffset(block, head, token, i):]
			src = source.Value[source.ValueOffset(block, head, token, i):]
			convertNumber(target, source, dst, src, values)
		}
	}
	if source.DType == Int8 {
		copy(target.Scales(target.KeyScales, block, head), source.Scales(source.KeyScales, block, head))
		copy(target.Scales(target.ValueScales, block, head), source.Scales(source.ValueScales, block, head))
	}
}

// convertNumber reads a number of type source.DType from src, multiplies it by factor, and stores it in dst as
// target.DType. If the types are equal and factor is 1, the number keeps its bits.
func convertNumber(target, source *Cache, dst, src []byte, factor float32) {
	if target.DType == source.DType && factor == 1 {
		copy(dst, src[:source.DType.Size()])
		return
	}
	target.DType.Store(unsafe.Pointer(&dst[0]), source.DType.Load(unsafe.Pointer(&src[0]))*factor)
}
