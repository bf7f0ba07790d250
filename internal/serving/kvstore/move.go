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

func (s *Store) move(to, from tier, pairs []Pair) error {
	if err := checkPairs(pairs, to.blocks, from.blocks); err != nil || len(pairs) == 0 {
		return err
	}
	m := &s.mover
	m.to, m.from, m.pairs, m.parts = to.layers, from.layers, pairs, min(s.config.NumKVHeads, s.pool.Size())
	s.pool.Run(len(m.to)*m.parts, m)
	*m = mover{}
	return nil
}

func checkPairs(pairs []Pair, to, from int) error {
	for i, p := range pairs {
		if uint(p.Src) >= uint(from) || uint(p.Dst) >= uint(to) {
			return fmt.Errorf("%w: pair %d copies block %d, where there are %d, to block %d, where there are %d",
				attention.ErrArgument, i, p.Src, from, p.Dst, to)
		}
	}
	return nil
}

// A mover copies blocks on the workers of a pool. Each task copies the same part of every block, one pair after the
// other. A later pair therefore reads what an earlier pair has written.
type mover struct {
	to, from []attention.Cache
	pairs    []Pair
	parts    int
}

// Do copies one part of all blocks of a layer, as a parallel.Task.
func (m *mover) Do(_, i int) {
	layer, part := i/m.parts, i%m.parts
	for _, p := range m.pairs {
		to := pieces(&m.to[layer], p.Dst)
		for j, from := range pieces(&m.from[layer], p.Src) {
			lo, hi := len(from)*part/m.parts, len(from)*(part+1)/m.parts
			copy(to[j][lo:hi], from[lo:hi])
		}
	}
}

// A Copier copies blocks of one layer between caches in any memory, on the workers of a pool. One goroutine may use it
// at a time.
type Copier struct {
	pool     *parallel.Pool
	to, from *attention.Cache
	pairs    []Pair
}

// NewCopier returns a Copier that copies on pool.
func NewCopier(pool *parallel.Pool) *Copier { return &Copier{pool: pool} }

// Copy copies the pairs in order: a later pair reads what an earlier pair has written. The two caches must be
// the same memory (vLLM's copy_blocks), or memory that does not overlap (swap_blocks). Their shapes and
// scales must be equal, but their strides and numbers of blocks may differ. If Copy returns an error, it has
// copied nothing. The error wraps attention.ErrArgument.
func (c *Copier) Copy(to, from *attention.Cache, pairs []Pair) error {
	if err := checkCopy(to, from); err != nil {
		return err
	}
	if err := checkPairs(pairs, to.NumBlocks, from.NumBlocks); err != nil {
		return err
	}
	c.to, c.from, c.pairs = to, from, pairs
	c.pool.Run(to.NumKVHeads, c)
	c.to, c.from, c.pairs = nil, nil, nil
	return nil
}

func checkCopy(to, from *attention.Cache) error {
	for _, c := range []*attention.Cache{from, to} {
		if err := c.Check(); err != nil {
			return err
		}
	}
	toKey, toValue := to.Factors()
	fromKey, fromValue := from.Factors()
	if to.Shape != from.Shape || toKey != fromKey || toValue != fromValue {
		return fmt.Errorf("%w: blocks can be copied only between caches with the same type, layout, block size, KV heads, "+
			"head size and scales", attention.ErrArgument)
	}
	if !sameMemory(to, from) && to.OverlapsBlocks(from) {
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
	to, from := c.to, c.from
	rows, size := 1, to.BlockSize*to.HeadSize*to.DType.Size() // contiguous pieces of a head, and their bytes
	if to.Layout == attention.LayoutFlash {
		rows, size = to.BlockSize, to.HeadSize*to.DType.Size()
	}
	for _, p := range c.pairs {
		src, dst := int(p.Src), int(p.Dst)
		for row := range rows {
			copy(to.Key[to.KeyOffset(dst, head, row, 0):][:size], from.Key[from.KeyOffset(src, head, row, 0):][:size])
			copy(to.Value[to.ValueOffset(dst, head, row, 0):][:size], from.Value[from.ValueOffset(src, head, row, 0):][:size])
		}
		if to.DType == attention.Int8 {
			copy(to.Scales(to.KeyScales, dst, head), from.Scales(from.KeyScales, src, head))
			copy(to.Scales(to.ValueScales, dst, head), from.Scales(from.ValueScales, src, head))
		}
	}
}
