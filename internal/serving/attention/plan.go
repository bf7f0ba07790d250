package attention

import (
	"cmp"
	"slices"
)

// A plan divides a batch into items of work. It determines in which order the items begin, but has no effect on the
// results.
type plan struct {
	prefixParts int // partitions of the common prefix; they are read once for all sequences
	records     int // results to save for the reductions

	prefix     []item // run before items
	items      []item
	reductions []reduction
	running    []item
}

// An item is a piece of work. It is the attention of some query tokens, in the query heads of some KV heads, over some
// partitions of the context. An item of several query tokens has one KV head. An item of a single query token can have
// several KV heads. A core computes all KV heads of an item before it goes on to the next partition. It therefore reads
// these heads of a block at about the same time.
type item struct {
	kind         itemKind
	seq          int // or -1 if the query tokens belong to several sequences
	kvHead       int // the first KV head
	heads        int // KV heads
	token0       int // query tokens [token0, token1) of the batch
	token1       int
	part0, part1 int
	first        int // itemRun: index of the record of row 0 in partition part0
	stride       int // itemRun: number of records from one row to the next
	cost         int // see cost
}

type itemKind uint8

const (
	itemWhole  itemKind = iota // the whole context after the common prefix: computes the output
	itemRun                    // some partitions, whose results are saved for a reduction
	itemPrefix                 // all partitions of the common prefix, merged
)

// A reduction merges the saved results of items of kind itemRun, in the order of their partitions.
type reduction struct {
	seq            int
	kvHead, heads  int
	token0, token1 int
	parts          int
	first          int
}

// maxItemRows is the largest number of rows of an item with several query tokens. With so many rows, converting keys
// and values to float32 takes little time compared with the multiplications.
const maxItemRows = 512

// maxSavedBytes limits the bytes of saved results. Each run of partitions must save its results. An item is not cut
// into runs if their results would exceed the limit.
const maxSavedBytes = 1 << 28

func (p *plan) make(c *Cache, b *Batch, workers int) {
	p.prefix, p.items, p.reductions = p.prefix[:0], p.items[:0], p.reductions[:0]
	p.records, p.prefixParts = 0, 0
	tokens := max(1, maxItemRows/(b.NumHeads/c.NumKVHeads))
	// The prefix is read through the table of sequence 0. This table is valid only if sequence 0 has queries.
	if b.CommonPrefix >= partitionSize && b.seqs() > 1 && b.QueryStart[1] > 0 {
		p.prefixParts = b.CommonPrefix / partitionSize
		p.addPrefix(c, b, tokens)
	}
	total := 0
	for seq := range b.seqs() {
		total += p.addSequence(c, b, seq, tokens)
	}
	p.split(b, b.NumHeads/c.NumKVHeads, total, workers, maxSavedBytes/(4*recordSize(c)))
	slices.SortStableFunc(p.items, func(a, b item) int { return cmp.Compare(b.cost, a.cost) })
}

func (p *plan) addPrefix(c *Cache, b *Batch, tokens int) {
	all := int(b.QueryStart[b.seqs()])
	for head := range c.NumKVHeads {
		for token := 0; token < all; token += tokens {
			p.prefix = append(p.prefix, item{
				kind: itemPrefix, seq: -1, kvHead: head, heads: 1,
				token0: token, token1: min(all, token+tokens), part1: p.prefixParts,
			})
		}
	}
}

// addSequence adds the items of a sequence, not yet cut into runs, and returns the sum of their costs. An item has
// at most the given number of query tokens.
func (p *plan) addSequence(c *Cache, b *Batch, seq, tokens int) int {
	first, n, position := b.queries(seq)
	total := 0
	for start := 0; start < n; start += tokens {
		end := min(n, start+tokens)
		contextStart, _ := b.attended(position + start)
		_, contextEnd := b.attended(position + end - 1)
		it := item{
			seq: seq, token0: first + start, token1: first + end,
			part0: max(p.prefixParts, contextStart/partitionSize), part1: (contextEnd-1)/partitionSize + 1,
		}
		it.cost = cost(c, contextEnd-it.part0*partitionSize, (end-start)*(b.NumHeads/c.NumKVHeads))
		it.heads = 1
		if end-start == 1 {
			it.heads = c.NumKVHeads
		}
		it.cost *= it.heads
		for head := 0; head < c.NumKVHeads; head += it.heads {
			it.kvHead = head
			p.items = append(p.items, it)
			total += it.cost
		}
	}
	return total
}

// cost estimates the work of an item in bytes to read. For many rows, multiplying takes longer than reading, so cost
// counts one byte for eight multiplications. These take about as long as reading a byte.
func cost(c *Cache, tokens, rows int) int {
	return 2 * tokens * c.HeadSize * max(c.DType.Size(), rows/8)
}

// split cuts items into smaller ones if workers would otherwise be idle. With V2, it cuts all items that have several
// partitions, up to the limit maxRecords. It cuts an item into runs of partitions, or divides its KV heads, or both. It
// divides the KV heads in two cases:
//
//   - The partitions must stay together, as in V1.
//
//   - The item has few partitions, so that a run of one partition would be too large. For example, a context of 513
//     tokens has two partitions, and the first has 512 tokens.
//
// group is the number of query heads per KV head, and total is the sum of all costs. maxRecords is the largest number
// of results that all runs together may save.
func (p *plan) split(b *Batch, group, total, workers, maxRecords int) {
	share := total/(4*workers) + 1
	whole := b.Version == V1 || b.Version == Auto && ruleV1(b)
	for i := 0; i < len(p.items); i++ {
		it := p.items[i]
		if it.kind == itemRun {
			continue
		}
		parts := it.part1 - it.part0
		large := it.cost > share && workers > 1
		if large {
			runs := max(1, parts) // runs into which the item is cut as well
			if whole {
				runs = 1
			}
			p.cutHeads(i, max(1, it.heads*share*runs/it.cost))
			it = p.items[i]
		}
		if parts < 2 || b.Version == V1 || b.Version == Auto && !large {
			continue
		}
		if !whole || it.heads == 1 && it.cost > 2*share {
			p.cut(i, group, max(1, parts*share/max(1, it.cost)), maxRecords)
		}
	}
}

func (p *plan) cutHeads(i, heads int) {
	all := p.items[i]
	for head := 0; head < all.heads; head += heads {
		piece := all
		piece.kvHead, piece.heads = all.kvHead+head, min(heads, all.heads-head)
		piece.cost = all.cost / all.heads * piece.heads
		if head == 0 {
			p.items[i] = piece
		} else {
			p.items = append(p.items, piece)
		}
	}
}

// cut cuts item i into runs of consecutive partitions. Each run has step partitions; only the last may have fewer. cut
// changes nothing if the plan would then have more than maxRecords records.
func (p *plan) cut(i, group, step, maxRecords int) {
	all := p.items[i]
	parts := all.part1 - all.part0
	records := parts * (all.token1 - all.token0) * all.heads * group
	if p.records+records > maxRecords {
		return
	}
	red := reduction{all.seq, all.kvHead, all.heads, all.token0, all.token1, parts, p.records}
	p.reductions = append(p.reductions, red)
	p.records += records
	for part := all.part0; part < all.part1; part += step {
		run := all
		run.kind, run.part0, run.part1 = itemRun, part, min(all.part1, part+step)
		run.first, run.stride = red.first+part-all.part0, parts
		run.cost = all.cost * (run.part1 - run.part0) / parts
		if part == all.part0 {
			p.items[i] = run
		} else {
			p.items = append(p.items, run)
		}
	}
}

// ruleV1 reports whether vLLM would choose V1 (use_v1 in PagedAttention.forward_decode). It does if there is only one
// partition, since no reduction is needed then. It also does if there are enough sequences and heads to keep all cores
// busy. vLLM's V1 kernel accepts contexts of at most 8,192 tokens.
func ruleV1(b *Batch) bool {
	longest := int32(0)
	for _, n := range b.SeqLens {
		longest = max(longest, n)
	}
	return longest <= 8192 && (longest <= partitionSize || b.seqs()*b.NumHeads > 512)
}
