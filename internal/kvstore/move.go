package kvstore

import (
	"fmt"

	"llmmemory/internal/attention"
	"llmmemory/internal/parallel"
)

// A Pair is a block to be copied, and the block that becomes its copy.
type Pair struct{ Src, Dst int32 }

// CopyBlocks copies blocks of the device in all layers, pair after pair (vLLM's
// copy_blocks): a later pair sees what an earlier one has written.
func (s *Store) CopyBlocks(pairs []Pair) error { return s.move(&s.device, &s.device, pairs) }

// SwapOut copies blocks of the device (Src) to the host (Dst) in all layers.
func (s *Store) SwapOut(pairs []Pair) error { return s.move(&s.device, &s.host, pairs) }

// SwapIn copies blocks of the host (Src) to the device (Dst) in all layers.
func (s *Store) SwapIn(pairs []Pair) error { return s.move(&s.host, &s.device, pairs) }

func (s *Store) move(from, to *tier, pairs []Pair) error {
	for i, p := range pairs {
		if uint(p.Src) >= uint(from.blocks) || uint(p.Dst) >= uint(to.blocks) {
			return fmt.Errorf("%w: pair %d copies block %d, where there are %d, to block %d, where there are %d",
				attention.ErrArgument,
				i, p.Src, from.blocks, p.Dst, to.blocks)
		}
	}
	if len(pairs) > 0 {
		s.mover.move(s.pool, from.layers, to.layers, pairs)
	}
	return nil
}

// A mover copies blocks on the workers of a pool. Each of them copies the same part of
// every block, so that it sees what earlier pairs have written.
type mover struct {
	from, to []attention.Cache
	pairs    []Pair
	parts    int
}

func (m *mover) move(pool *parallel.Pool, from, to []attention.Cache, pairs []Pair) {
	m.from, m.to, m.pairs = from, to, pairs
	m.parts = min(from[0].NumKVHeads, pool.Size())
	pool.Run(len(from)*m.parts, m)
	m.from, m.to, m.pairs = nil, nil, nil
}

// Do copies a part of all blocks of a layer; see parallel.Task.
func (m *mover) Do(_, i int) {
	layer, part := i/m.parts, i%m.parts
	from, to := &m.from[layer], &m.to[layer]
	for _, p := range m.pairs {
		src, dst := int(p.Src), int(p.Dst)
		slice(to.Key, from.Key, dst, src, from.BlockStride, part, m.parts)
		if from.Layout == attention.LayoutTile {
			continue // values and scales lie between the keys
		}
		slice(to.Value, from.Value, dst, src, from.BlockStride, part, m.parts)
		if from.DType == attention.Int8 {
			slice(to.KeyScales, from.KeyScales, dst, src, from.ScaleBlockStride, part, m.parts)
			slice(to.ValueScales, from.ValueScales, dst, src, from.ScaleBlockStride, part, m.parts)
		}
	}
}

// slice copies one of the given number of parts of a block of size bytes.
func slice(to, from []byte, dst, src, size, part, parts int) {
	lo, hi := size*part/parts, size*(part+1)/parts
	copy(to[dst*size+lo:dst*size+hi], from[src*size+lo:src*size+hi])
}
