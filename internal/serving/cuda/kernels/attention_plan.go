package kernels

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"llmmemory/internal/serving/cuda"
)

// An AttentionPlan assigns the rows of a batch to threads. A row is one query head of one token. The rows of
// the heads that share a key head are adjacent. In decoding, the rows of a sequence are divided into tiles of
// 16 rows. The keys of a tile are divided into partitions of 256 keys, which are computed in parallel and
// then merged. In prefill, the rows are divided into larger tiles, and each tile reads all its keys one after
// the other. Both ways give the same bits.
type AttentionPlan struct {
	Entries   []int32 // to be copied to the GPU
	PartBytes int     // of PagedAttention.Parts, may be 0

	shape                        AttentionShape
	window                       int
	splitTiles, splitRows, works int // tiles that are split, the largest number of rows of such a tile, partitions of all these tiles
	wholeTiles, warps            int
	tileParts                    int // the largest number of partitions of a tile that is split
	wholeAt, workAt              int // where entries begin; those of split tiles come first
}

// Plan plans the attention of a batch on a GPU. Sequence s has seqLens[s] tokens, of which the last
// queryStart[s+1]-queryStart[s] are queries.
func (s AttentionShape) Plan(device cuda.Device, queryStart, seqLens []int32, window int) (AttentionPlan, error) {
	p := AttentionPlan{shape: s, window: window}
	if err := s.check(); err != nil {
		return p, err
	}
	if window < 0 {
		return p, fmt.Errorf("attention with a window of %d tokens: it must be at least 0, which means all", window)
	}
	if len(queryStart) != len(seqLens)+1 || queryStart[0] != 0 {
		return p, fmt.Errorf("a batch of %d sequences with starts of queries %v: there is one more start than sequences, and the first is 0", len(seqLens), queryStart)
	}
	all := make([]sequence, len(seqLens))
	for i := range all {
		all[i] = sequence{i, int(queryStart[i+1] - queryStart[i]), int(seqLens[i])}
		if all[i].queries < 0 || all[i].queries > all[i].length {
			return p, fmt.Errorf("sequence %d has %d tokens, %d of them queries", i, all[i].length, all[i].queries)
		}
	}
	maxWarps := maxPrefillWarps
	for maxWarps > 1 && s.prefillMemory(maxWarps) > device.SharedMemory {
		maxWarps /= 2
	}
	if s.prefillMemory(maxWarps) > device.SharedMemory || s.decodeMemory() > device.SharedMemory {
		return p, fmt.Errorf("attention with heads of %d elements needs %d bytes of shared memory: %s has %d", s.HeadSize,
			max(s.prefillMemory(1), s.decodeMemory()), device.Name, device.SharedMemory)
	}
	// The longest sequences come first, so that the last ones to run are short.
	slices.SortStableFunc(all, func(a, b sequence) int { return cmp.Compare(b.length, a.length) })
	p.choose(all, maxWarps, device.Multiprocessors)
	return p, nil
}

// maxPrefillWarps is the largest number of warps of a block of prefill. The number is a power of two, so that the four
// schedulers of a multiprocessor have the same number of warps, unless there are fewer warps than schedulers.
const maxPrefillWarps = 8

type sequence struct{ number, queries, length int }

// choose selects the largest number of warps for a block of prefill that still gives every multiprocessor a
// block. If there are too few blocks even with one warp each, the keys of long sequences are split into
// partitions.
func (p *AttentionPlan) choose(sequences []sequence, maxWarps, multiprocessors int) {
	group := p.shape.group()
	rows := func(warps int) int { return warps * p.shape.tiles() * attentionTile }
	blocks := func(warps int) (n int) {
		for _, q := range sequences {
			if q.queries*group > attentionTile {
				n += (q.queries*group + rows(warps) - 1) / rows(warps) * p.shape.KVHeads
			}
		}
		return n
	}
	for p.warps = maxWarps; p.warps > 1 && blocks(p.warps) < multiprocessors; p.warps /= 2 {
	}
	tooFew := blocks(p.warps) < multiprocessors
	var split, whole, work []int32
	for _, q := range sequences {
		if n := q.queries * group; n <= attentionTile || tooFew && q.length > 2*AttentionPartition {
			for row := 0; row < n; row += attentionTile {
				start, end := p.partitions(q, row, min(row+attentionTile, n)-1)
				split = append(split, int32(q.number), int32(row), int32(len(work)/2), int32(end-start))
				for i := start; i < end; i++ {
					work = append(work, int32(len(split)/4-1), int32(i))
				}
				p.splitRows, p.tileParts = max(p.splitRows, min(n-row, attentionTile)), max(p.tileParts, end-start)
			}
			continue
		}
		// Rows at the end have the most keys.
		for row := (q.queries*group - 1) / rows(p.warps) * rows(p.warps); row >= 0; row -= rows(p.warps) {
			whole = append(whole, int32(q.number), int32(row), 0, 0)
		}
	}
	p.splitTiles, p.wholeTiles, p.works = len(split)/4, len(whole)/4, len(work)/2
	p.wholeAt, p.workAt = len(split), len(split)+len(whole)
	p.Entries = slices.Concat(split, whole, work)
	p.PartBytes = p.works * p.shape.PartitionBytes()
}

// A DecodeShape is the shape of a plan of decoding. Plans with the same shape have equal launches, so one graph serves
// them all.
type DecodeShape struct {
	tiles, rows, partitions int
	merges                  bool
}

// merges reports whether decoding can merge the partitions. One warp merges all partitions of a tile, which would take
// long for many partitions.
func (p *AttentionPlan) merges() bool { return p.tileParts <= maxMerged }

// Counters returns the number of uint32 in PagedAttention.Arrived.
func (p *AttentionPlan) Counters() int { return p.splitTiles * p.shape.KVHeads }

// PadDecode adds entries without a tile or a partition, which the kernels skip, so that few different shapes occur.
// Then the plan has at least the given number of tiles, and its number of partitions is a power of two. If the plan has
// tiles of prefill, or no partitions, PadDecode changes nothing and returns false.
func (p *AttentionPlan) PadDecode(tiles int) (DecodeShape, bool) {
	if p.wholeTiles > 0 || p.works == 0 {
		return DecodeShape{}, false
	}
	padding, works := max(0, tiles-p.splitTiles), 1<<bits.Len(uint(p.works-1))
	p.Entries = slices.Concat(p.Entries[:p.workAt], slices.Repeat([]int32{-1, 0, 0, 0}, padding), p.Entries[p.workAt:],
		slices.Repeat([]int32{-1, 0}, works-p.works))
	p.splitTiles, p.works = p.splitTiles+padding, works
	p.workAt += 4 * padding
	p.wholeAt = p.workAt
	return DecodeShape{p.splitTiles, p.splitRows, p.works, p.merges()}, true
}

// partitions returns the range [start, end) of the partitions that contain a key to which one of the rows attends.
func (p *AttentionPlan) partitions(q sequence, firstRow, lastRow int) (start, end int) {
	keysEnd := func(row int) int { return q.length - q.queries + row/p.shape.group() + 1 }
	if p.window > 0 {
		start = max(0, keysEnd(firstRow)-p.window)
	}
	return start / AttentionPartition, (keysEnd(lastRow) + AttentionPartition - 1) / AttentionPartition
}
