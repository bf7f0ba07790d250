package attention

import (
	"fmt"
	"unsafe"
)

// Convert copies all blocks of a cache to another of the same size in another
// layout or type. Numbers are rounded to nearest; of Int8 the scales go along, so
// both must be Int8 or neither.
func Convert(to, from *Cache) error {
	if err := from.Check(); err != nil {
		return err
	}
	if err := to.Check(); err != nil {
		return err
	}
	if to.NumBlocks < from.NumBlocks || to.BlockSize != from.BlockSize || to.NumKVHeads != from.NumKVHeads || to.HeadSize != from.HeadSize {
		return fmt.Errorf("%w: %d blocks of %d tokens, %d heads of %d do not go into %d of %d, %d of %d", ErrArgument,
			from.NumBlocks, from.BlockSize, from.NumKVHeads, from.HeadSize, to.NumBlocks, to.BlockSize, to.NumKVHeads, to.HeadSize)
	}
	if (to.DType == Int8) != (from.DType == Int8) {
		return fmt.Errorf("%w: %v does not become %v without new scales", ErrArgument, from.DType, to.DType)
	}
	for _, part := range from.parts() {
		if to.overlaps(part) {
			return fmt.Errorf("%w: %w: the blocks to be written and to be read", ErrArgument, ErrOverlap)
		}
	}
	keys, values := ratioOf(from.KeyScale, to.KeyScale), ratioOf(from.ValueScale, to.ValueScale)
	for block := range from.NumBlocks {
		for head := range from.NumKVHeads {
			convertHead(to, from, block, head, keys, values)
		}
	}
	return nil
}

// ratioOf is what stored numbers are multiplied with; 0 stands for a scale of 1.
func ratioOf(from, to float32) float32 {
	if from == 0 {
		from = 1
	}
	if to == 0 {
		to = 1
	}
	return from / to
}

func convertHead(to, from *Cache, block, head int, keys, values float32) {
	for token := range from.BlockSize {
		for i := range from.HeadSize {
			k := from.DType.Load(unsafe.Pointer(&from.Key[from.KeyOffset(block, head, token, i)]))
			to.DType.Store(unsafe.Pointer(&to.Key[to.KeyOffset(block, head, token, i)]), k*keys)
			v := from.DType.Load(unsafe.Pointer(&from.Value[from.ValueOffset(block, head, token, i)]))
			to.DType.Store(unsafe.Pointer(&to.Value[to.ValueOffset(block, head, token, i)]), v*values)
		}
	}
	if from.DType == Int8 {
		copy(to.Scales(to.KeyScales, block, head), from.Scales(from.KeyScales, block, head))
		copy(to.Scales(to.ValueScales, block, head), from.Scales(from.ValueScales, block, head))
	}
}
