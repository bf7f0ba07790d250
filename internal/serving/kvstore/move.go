package kvstore

import (
	"fmt"
	"unsafe"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/parallel"
)

// A Pair is a block to copy, Src, and the block to copy it to, Dst.
type Pair struct{ Src, Dst int32 }

// CopyBlocks copies device blocks in all layers (vLLM's copy_blocks). It copies the pairs in order: a later pair reads
// what an earlier pair has written.
func (s *Store) CopyBlocks(pairs []Pair) error { return s.move(s.device, s.device, pairs) }

// SwapOut copies blocks of the device (Src) to the host (Dst) in all layers.
func (s *Store) SwapOut(pairs []Pair) error { return s.move(s.host, s.device, pairs) }

// SwapIn copies blocks of the host (Src) to the device (Dst) in all layers.
func (s *Store) SwapIn(pairs []Pair) error { return s.move(s.device, s.host, pairs) }

func (s *Store) move(dst, src tier, pairs []Pair) error {
	if err := checkPairs(pairs, dst.blocks, src.blocks); err != nil || len(pairs) == 0 {
		return err
	}
	m := &s.mover
	m.dst, m.src, m.pairs, m.parts = dst.layers, src.layers, pairs, min(s.config.NumKVHeads, s.pool.Size())
	s.pool.Run(len(m.dst)*m.parts, m)
	*m = mover{}
	return nil
}

func checkPairs(pairs []Pair, dstBlocks, srcBlocks int) error {
	for i, p := range pairs {
		if uint(p.Src) >= uint(srcBlocks) || uint(p.Dst) >= uint(dstBlocks) {
			return fmt.Errorf("%w: pair %d copies block %d, where there are %d, to block %d, where there are %d",
				attention.ErrArgument, i, p.Src, srcBlocks, p.Dst, dstBlocks)
		}
	}
	return nil
}

// A mover copies blocks on the workers of a pool. Each task copies the same part of every block, one pair after the
// other. A later pair therefore reads what an earlier pair has written.
type mover struct {
	dst, src []attention.Cache
	pairs    []Pair
	parts    int
}

// Do copies the same part of every block of one layer, as a parallel.Task. The index i says which layer and which part.
func (m *mover) Do(_, i int) {
	layer, part := i/m.parts, i%m.parts
	for _, p := range m.pairs {
		dst := pieces(&m.dst[layer], p.Dst)
		for j, src := range pieces(&m.src[layer], p.Src) {
			lo, hi := len(src)*part/m.parts, len(src)*(part+1)/m.parts
			copy(dst[j][lo:hi], src[lo:hi])
		}
	}
}

// A Copier copies blocks of one layer between two caches, on the workers of a pool. The caches need not be part of a
// Store. One goroutine may use a Copier at a time.
type Copier struct {
	pool     *parallel.Pool
	dst, src *attention.Cache
	pairs    []Pair
}

// NewCopier returns a Copier that copies on pool.
func NewCopier(pool *parallel.Pool) *Copier { return &Copier{pool: pool} }

// Copy copies the pairs in order: a later pair reads what an earlier pair has written. The two caches must be
// the same memory (vLLM's copy_blocks), or memory that does not overlap (swap_blocks). Their shapes and
// scales must be equal, but their strides and numbers of blocks may differ. If Copy returns an error, it has
// copied nothing. The error wraps attention.ErrArgument.
func (c *Copier) Copy(dst, src *attention.Cache, pairs []Pair) error {
	if err := checkCopy(dst, src); err != nil {
		return err
	}
	if err := checkPairs(pairs, dst.NumBlocks, src.NumBlocks); err != nil {
		return err
	}
	c.dst, c.src, c.pairs = dst, src, pairs
	c.pool.Run(dst.NumKVHeads, c)
	c.dst, c.src, c.pairs = nil, nil, nil
	return nil
}

func checkCopy(dst, src *attention.Cache) error {
	for _, c := range []*attention.Cache{src, dst} {
		if err := c.Check(); err != nil {
			return err
		}
	}
	dstKey, dstValue := dst.Factors()
	srcKey, srcValue := src.Factors()
	if dst.Shape != src.Shape || dstKey != srcKey || dstValue != srcValue {
		return fmt.Errorf("%w: blocks can be copied only between caches with the same type, layout, block size, KV heads, "+
			"head size and scales", attention.ErrArgument)
	}
	if !sameMemory(dst, src) && dst.OverlapsBlocks(src) {
		return fmt.Errorf("%w: %w: two caches that are not the same share memory", attention.ErrArgument,
			attention.ErrOverlap)
	}
	return nil
}

func sameMemory(a, b *attention.Cache) bool {
	return unsafe.SliceData(a.Key) == unsafe.SliceData(b.Key) && unsafe.SliceData(a.Value) == unsafe.SliceData(b.Value) &&
		unsafe.SliceData(a.KeyScales) == unsafe.SliceData(b.KeyScales) &&
		unsafe.SliceData(a.ValueScales) == unsafe.SliceData(b.ValueScales) &&
		a.BlockStride == b.BlockStride && a.HeadStride == b.HeadStride &&
		a.ScaleBlockStride == b.ScaleBlockStride && a.ScaleHeadStride == b.ScaleHeadStride
}

// Do copies a KV head of all pairs; see parallel.Task.
func (c *Copier) Do(_, head int) {
	dst, src := c.dst, c.src
	rows, size := 1, dst.BlockSize*dst.HeadSize*dst.DType.Size() // contiguous pieces of a head, and their bytes
	if dst.Layout == attention.LayoutFlash {
		rows, size = dst.BlockSize, dst.HeadSize*dst.DType.Size()
	}
	for _, p := range c.pairs {
		srcBlock, dstBlock := int(p.Src), int(p.Dst)
		for row := range rows {
			copy(dst.Key[dst.KeyOffset(dstBlock, head, row, 0):][:size], src.Key[src.KeyOffset(srcBlock, head, row, 0):][:size])
			copy(dst.Value[dst.ValueOffset(dstBlock, head, row, 0):][:size], src.Value[src.ValueOffset(srcBlock, head, row, 0):][:size])
		}
		if dst.DType == attention.Int8 {
			copy(dst.Scales(dst.KeyScales, dstBlock, head), src.Scales(src.KeyScales, srcBlock, head))
			copy(dst.Scales(dst.ValueScales, dstBlock, head), src.Scales(src.ValueScales, srcBlock, head))
		}
	}
}
