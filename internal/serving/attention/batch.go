package attention

import (
	"math"
)

// Version says how the work on a sequence's context is divided. The output has the same bits with every Version.
type Version uint8

const (
	// Auto chooses V1 or V2 by vLLM's rule. It also divides a long sequence into partitions if cores would otherwise be
	// idle.
	Auto Version = iota
	V1           // the partitions of a context stay together (paged_attention_v1)

	// V2 computes partitions separately and merges their results in a reduction (paged_attention_v2). It does not
	// divide work whose results would need more than maxSavedBytes bytes.
	V2
)

// A Batch describes the attention of one step in one layer. Each sequence attends to its own context. Sequence s has
// SeqLens[s] tokens. The last of them are its query tokens: rows [QueryStart[s], QueryStart[s+1]) of Query and Out
// belong to them. A query token attends to itself and to the tokens before it, or only to the last of these
// (SlidingWindow, Chunk). The keys and values of all these tokens must have been written.
type Batch struct {
	NumHeads int // query heads: a multiple of the KV heads

	// Query and Out are [query tokens, NumHeads, head size], and may be the same memory. If values are latent, only the
	// first Latent elements of each head of Out are written.
	Query, Out Tensor

	QueryStart []int32 // vLLM's query_start_loc: sequences + 1 entries, the first is 0
	SeqLens    []int32

	// BlockTables has a row of TableStride entries for each sequence. The block of token t of sequence s is
	// BlockTables[s·TableStride + t / block size]. Forward ignores the entries of blocks after the last token, and of
	// blocks that lie before the windows or chunks of all query tokens.
	BlockTables []int32
	TableStride int

	Scale         float32   // of q·k, usually 1/sqrt(head size)
	AlibiSlopes   []float32 // [NumHeads], or nil: slope · (token - query token) is added to logits
	SlidingWindow int       // how many tokens a query token attends to, itself included; 0 means all
	Chunk         int       // if not 0, a query token attends only to tokens of its chunk: token t is in chunk t / Chunk
	SoftCap       float32   // if not 0, logits become cap · tanh(logit / cap)
	Sinks         []float32 // [NumHeads], or nil: the logit of an extra token without a value

	// CommonPrefix is the number of tokens in the common prefix of all sequences with query tokens (vLLM's
	// num_common_prefix_blocks × block size). These sequences begin with the same tokens in the same blocks. If
	// there are several sequences and sequence 0 has query tokens, Forward reads each whole partition of the prefix for
	// the query tokens of several sequences at once. The output has the same bits for every valid CommonPrefix.
	CommonPrefix int

	Version Version
}

func (b *Batch) seqs() int { return len(b.SeqLens) }

// table returns a sequence's row of BlockTables. For a single sequence, the row is the whole of BlockTables,
// whatever the stride.
func (b *Batch) table(seq int) []int32 {
	switch {
	case b.seqs() == 1:
		return b.BlockTables
	case seq > 0 && b.TableStride > len(b.BlockTables)/seq:
		return nil
	}
	rest := b.BlockTables[seq*b.TableStride:]
	return rest[:min(len(rest), b.TableStride)]
}

func (b *Batch) queries(seq int) (first, n, position int) {
	first = int(b.QueryStart[seq])
	n = int(b.QueryStart[seq+1]) - first
	return first, n, int(b.SeqLens[seq]) - n
}

// attended returns the range [start, end) of tokens to which the query token at position attends.
func (b *Batch) attended(position int) (start, end int) {
	if b.SlidingWindow > 0 {
		start = max(0, position+1-b.SlidingWindow)
	}
	if b.Chunk > 0 {
		start = max(start, position-position%b.Chunk)
	}
	return start, position + 1
}

func (b *Batch) check(c *Cache) error {
	seqs := b.seqs()
	switch {
	case b.NumHeads < 1 || b.NumHeads > MaxHeads || b.NumHeads%c.NumKVHeads != 0:
		return badArgument("%d query heads; multiples of the %d KV heads up to %d are possible", b.NumHeads, c.NumKVHeads,
			MaxHeads)
	case len(b.QueryStart) != seqs+1:
		return badArgument("%d starts of queries for %d sequences; there must be one more", len(b.QueryStart), seqs)
	case b.QueryStart[0] != 0:
		return badArgument("the first query token is %d, not 0", b.QueryStart[0])
	case b.AlibiSlopes != nil && len(b.AlibiSlopes) != b.NumHeads:
		return badArgument("%d ALiBi slopes for %d heads", len(b.AlibiSlopes), b.NumHeads)
	case b.Sinks != nil && len(b.Sinks) != b.NumHeads:
		return badArgument("%d sinks for %d heads", len(b.Sinks), b.NumHeads)
	case b.SlidingWindow < 0 || b.Chunk < 0:
		return badArgument("a window of %d tokens, chunks of %d; both must be at least 0", b.SlidingWindow, b.Chunk)
	case !(b.SoftCap >= 0) || math.IsInf(float64(b.SoftCap), 1):
		return badArgument("a soft cap of %v; it must be finite and at least 0", b.SoftCap)
	case math.IsNaN(float64(b.Scale)) || math.IsInf(float64(b.Scale), 0):
		return badArgument("a scale of %v; it must be finite", b.Scale)
	case b.TableStride < 0 || b.Version > V2:
		return badArgument("table stride %d, version %d; they must be at least 0, and at most %d", b.TableStride, b.Version,
			V2)
	}
	for seq := range seqs {
		if err := b.checkSequence(c, seq); err != nil {
			return err
		}
	}
	if err := b.checkShared(c); err != nil {
		return err
	}
	tokens, width := int(b.QueryStart[seqs]), b.NumHeads*c.HeadSize
	if err := b.Query.Check("queries", tokens, width); err != nil {
		return err
	}
	if err := b.Out.Check("outputs", tokens, width); err != nil {
		return err
	}
	return b.checkOverlap(c)
}

// checkOverlap returns an error if outputs share memory with anything that Forward reads, except the queries. Outputs
// may replace queries, because Forward reads no query after it has written the query's output.
func (b *Batch) checkOverlap(c *Cache) error {
	q, o := &b.Query, &b.Out
	if overlap(q.Data, o.Data) && (&q.Data[0] != &o.Data[0] || q.DType != o.DType || q.Stride != o.Stride) {
		return badArgument("%w: outputs overlap with queries, but do not have the same address, type and stride",
			ErrOverlap)
	}
	if c.Overlaps(o) {
		return badArgument("%w: outputs overlap with keys or values", ErrOverlap)
	}
	return nil
}

func (b *Batch) checkSequence(c *Cache, seq int) error {
	_, n, position := b.queries(seq)
	switch {
	case n < 0:
		return badArgument("sequence %d has %d query tokens", seq, n)
	case b.SeqLens[seq] < 0 || position < 0:
		return badArgument("sequence %d has %d tokens, %d of them queries", seq, b.SeqLens[seq], n)
	case n == 0:
		return nil
	}
	token, _ := b.attended(position)
	table := b.table(seq)
	start, end := token/c.BlockSize, (position+n-1)/c.BlockSize+1
	if end > len(table) {
		return badArgument("sequence %d needs %d entries of its block table; it has %d", seq, end, len(table))
	}
	for i, block := range table[start:end] {
		if uint(block) >= uint(c.NumBlocks) {
			return badArgument("entry %d of the block table of sequence %d is block %d; there are %d", start+i, seq, block,
				c.NumBlocks)
		}
	}
	return nil
}

func (b *Batch) checkShared(c *Cache) error {
	if b.CommonPrefix < 0 {
		return badArgument("a common prefix of %d tokens", b.CommonPrefix)
	}
	if b.CommonPrefix == 0 {
		return nil
	}
	first := -1
	for seq := range b.seqs() {
		_, n, position := b.queries(seq)
		if n == 0 {
			continue
		}
		if b.CommonPrefix > position {
			return badArgument("a common prefix of %d tokens, but sequence %d has only %d before its queries", b.CommonPrefix,
				seq, position)
		}
		if first < 0 {
			first = seq
		}
		if err := b.checkCommon(c, first, seq); err != nil {
			return err
		}
	}
	return nil
}

// checkCommon returns an error if the block table of sequence seq differs from that of sequence prefixSeq in the part
// of the common prefix to which seq attends. Forward can read the prefix of all sequences through the table of
// prefixSeq.
func (b *Batch) checkCommon(c *Cache, prefixSeq, seq int) error {
	_, _, position := b.queries(seq)
	token, _ := b.attended(position)
	start, end := token/c.BlockSize, (b.CommonPrefix+c.BlockSize-1)/c.BlockSize
	if start >= end {
		return nil
	}
	common, mine := b.table(prefixSeq)[start:end], b.table(seq)[start:end]
	for i := range mine {
		if mine[i] != common[i] {
			return badArgument("the first %d tokens are not common to all sequences: entry %d of the block table of "+
				"sequence %d is block %d, of sequence %d block %d", b.CommonPrefix, start+i, prefixSeq, common[i], seq, mine[i])
		}
	}
	return nil
}

func (b *Batch) blockOf(c *Cache, seq, token int) int {
	return int(b.BlockTables[seq*b.TableStride+token/c.BlockSize])
}
