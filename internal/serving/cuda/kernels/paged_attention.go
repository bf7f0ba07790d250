package kernels

import (
	"fmt"
	"math"
	"slices"

	"llmmemory/internal/serving/cuda"
)

// PagedAttention computes the attention of the queries of sequences over their keys and values. The keys and values are
// in blocks with the layout of device.h. PagedAttention does the work of vLLM's paged_attention and of its prefill.
// Each token attends to itself and to the tokens before it.
//
// The bits of a token's output depend only on its query and on the keys and values that it attends to. They do not
// depend on the other sequences, on the number of tokens computed together, on the Plan, or on which blocks are used.
// The values of a sequence must be finite. An infinite value or a NaN can change the outputs of earlier tokens in the
// same launch.
type PagedAttention struct {
	AttentionShape
	Out, Query             cuda.Pointer // [tokens][stride]; a token has Heads heads
	OutStride, QueryStride int          // elements from token to token; 0 means without gaps
	Keys, Values           cuda.Pointer

	// The block of token t of sequence s is int32 number s*TableStride + t/BlockSize of Tables.
	// Entries of tokens that no query attends to are not read.
	Tables      cuda.Pointer
	TableStride int

	// The sequence lengths and query starts for which the Plan was made, as int32. Sequence s has SeqLens[s] tokens.
	// The queries of a sequence are its last tokens. In Query and Out, they are the tokens from QueryStart[s] to
	// QueryStart[s+1]-1.
	SeqLens, QueryStart cuda.Pointer

	Plan    AttentionPlan
	Entries cuda.Pointer // a copy of AttentionPlan.Entries
	Parts   cuda.Pointer // AttentionPlan.PartBytes bytes for results of partitions
	Arrived cuda.Pointer // AttentionPlan.Counters uint32 that are 0, which the kernels leave 0; or 0: another kernel merges partitions

	Scale   float32      // of products of queries and keys, usually 1/sqrt(HeadSize)
	SoftCap float32      // if not 0, logits become cap * tanh(logit / cap); at most 1000
	Window  int          // how many tokens a token attends to, itself included; 0 means all
	Slopes  cuda.Pointer // ALiBi: float32 for each head, or 0
	Sinks   cuda.Pointer // float32 for each head, the logit of an extra token without a value, or 0
}

// An AttentionShape is what does not change from batch to batch.
type AttentionShape struct {
	Type           Type      // of queries and outputs
	Cache          CacheType // of keys and values
	HeadSize       int       // 64, 80, 96, 128 or 256
	Heads, KVHeads int       // numbers of query heads and of key heads; each key head serves 1 to 16 query heads
	BlockSize      int       // tokens of a block, a multiple of 16
}

// Limits of attention.
const (
	MaxQueryHeads = 16 // for each key head
	BlockUnit     = 16 // the number of tokens of a block is a multiple of it
)

var headSizes = []int{64, 80, 96, 128, 256}

// HeadSizeFor returns the smallest head size with attention kernels that is at least n, or 0 if there is none.
func HeadSizeFor(n int) int {
	for _, size := range headSizes {
		if size >= n {
			return size
		}
	}
	return 0
}

// AttentionPartition is the number of keys of a partition (see AttentionPlan), as in attention.h.
const AttentionPartition = 256

// Sizes of attention.h.
const (
	attentionStep = 64 // keys
	attentionTile = 16 // rows of queries
	maxMerged     = 16 // partitions of a tile that decoding merges (paged_attention.h)
)

// maxSoftCap is the largest soft cap. With a larger one, the float32 error of tanh near 1 would exceed the
// rounding errors of F16.
const maxSoftCap = 1000

func (s AttentionShape) group() int { return s.Heads / s.KVHeads }

// PartitionBytes returns the size of the results of a partition.
func (s AttentionShape) PartitionBytes() int { return s.KVHeads * attentionTile * (s.HeadSize + 2) * 4 }

// tiles returns the number of tiles of queries that a warp computes in prefill.
func (s AttentionShape) tiles() int {
	if s.HeadSize == 256 {
		return 1
	}
	return 2
}

// rowBytes returns the bytes that a row of queries, keys or values takes in shared memory (struct Rows in
// tile.h).
func (s AttentionShape) rowBytes() int { return (s.HeadSize/8 + 3) / 4 * 4 * 16 }

func (s AttentionShape) decodeMemory() int { return (attentionTile + 2*attentionStep) * s.rowBytes() }

func (s AttentionShape) prefillMemory(warps int) int {
	rows := s.tiles() * attentionTile
	return 2*attentionStep*s.rowBytes() + warps*rows*(s.rowBytes()+4*(s.HeadSize+2))
}

func (s AttentionShape) check() error {
	c := checker{kernel: "attention"}
	c.keep(s.Type.check(c.kernel))
	c.keep(s.Cache.check(c.kernel))
	c.require(slices.Contains(headSizes, s.HeadSize), " with heads of %d elements: there are kernels for 64, 80, 96, 128 and 256", s.HeadSize)
	c.require(s.KVHeads >= 1 && s.Heads >= 1 && s.Heads%s.KVHeads == 0 && s.group() <= MaxQueryHeads,
		" with %d heads and %d key heads: a key head serves a whole number of heads, at most %d", s.Heads, s.KVHeads, MaxQueryHeads)
	c.require(s.BlockSize >= 1 && s.BlockSize%BlockUnit == 0, " over blocks of %d tokens: multiples of %d are possible", s.BlockSize, BlockUnit)
	return c.err
}

// attention has the fields of struct Attention in attention.h.
type attention struct {
	out, query, keys, values           cuda.Pointer
	tables, seqLens, queryStart        cuda.Pointer
	tiles, work, parts, arrived        cuda.Pointer
	slopes, sinks                      cuda.Pointer
	queryStride, outStride             uint64
	tableStride, blockSize, heads, kvs int32
	window                             int32
	scale, softCap                     float32
	headSize, bf16, fp8Shift           int32
	valueScale                         float32
}

func (a PagedAttention) check() error {
	c, width := checker{kernel: "attention", empty: len(a.Plan.Entries) == 0}, a.Heads*a.HeadSize
	c.require((a.OutStride == 0 || a.OutStride >= width) && (a.QueryStride == 0 || a.QueryStride >= width) && a.QueryStride%8 == 0 && a.OutStride%8 == 0,
		" with strides of %d elements for queries and %d for outputs: each must be a multiple of 8 and at least %d", a.QueryStride, a.OutStride, width)
	c.require(!math.IsNaN(float64(a.Scale)) && !math.IsInf(float64(a.Scale), 0), " with a scale of %v: it must be finite", a.Scale)
	c.require(a.SoftCap >= 0 && a.SoftCap <= maxSoftCap, " with a soft cap of %v: it must be at least 0, which means none, and at most %v", a.SoftCap, maxSoftCap)
	c.require(a.Window == a.Plan.window && a.AttentionShape == a.Plan.shape,
		" with a window of %d and the shape %+v: the plan is for %d and %+v", a.Window, a.AttentionShape, a.Plan.window, a.Plan.shape)
	c.keep(a.AttentionShape.check())
	c.addresses(16, operand{"Out", a.Out}, operand{"Query", a.Query}, operand{"Keys", a.Keys}, operand{"Values", a.Values})
	c.addresses(4, operand{"Tables", a.Tables}, operand{"SeqLens", a.SeqLens}, operand{"QueryStart", a.QueryStart}, operand{"Entries", a.Entries})
	c.optional(4, operand{"Slopes", a.Slopes}, operand{"Sinks", a.Sinks}, operand{"Arrived", a.Arrived})
	if a.Plan.PartBytes > 0 {
		c.addresses(16, operand{"Parts", a.Parts})
	}
	return c.err
}

// Launch puts the kernels into a stream.
func (a PagedAttention) Launch(set *Set, s *cuda.Stream) error {
	if err := a.check(); err != nil {
		return err
	}
	width := a.Heads * a.HeadSize
	stride := func(n int) uint64 {
		if n == 0 {
			n = width
		}
		return uint64(n)
	}
	p := &a.Plan
	entry := func(i int) cuda.Pointer { return a.Entries + cuda.Pointer(4*i) }
	arguments := attention{out: a.Out, query: a.Query, keys: a.Keys, values: a.Values, tables: a.Tables, seqLens: a.SeqLens, queryStart: a.QueryStart,
		tiles: entry(0), work: entry(p.workAt), parts: a.Parts, slopes: a.Slopes, sinks: a.Sinks, queryStride: stride(a.QueryStride),
		outStride: stride(a.OutStride), tableStride: int32(a.TableStride), blockSize: int32(a.BlockSize), heads: int32(a.Heads), kvs: int32(a.KVHeads),
		window: int32(a.Window), scale: a.Scale, softCap: a.SoftCap, headSize: int32(a.HeadSize), bf16: int32(a.Type), valueScale: 1}
	if a.Cache == CacheE4M3 { // which the kernels read as F16 without a factor of 256
		arguments.fp8Shift, arguments.valueScale = 1, 256
		arguments.scale *= 256
	}
	suffix := fmt.Sprintf("_%v_%d", a.Type, a.HeadSize)
	if a.Cache != CacheAuto {
		suffix = fmt.Sprintf("_fp8_%d", a.HeadSize)
	}
	if p.works > 0 {
		merges := a.Arrived != 0 && p.merges()
		if merges {
			arguments.arrived = a.Arrived
		}
		shape := cuda.Shape{X: p.works * a.KVHeads, Threads: 32, Shared: a.decodeMemory()}
		if err := set.launch(s, "paged_attention_decode"+suffix, shape, arguments); err != nil {
			return err
		}
		shape = cuda.Shape{X: p.splitTiles * a.KVHeads, Y: p.splitRows, Threads: max(128, a.HeadSize)}
		if !merges {
			if err := set.launch(s, "paged_attention_merge", shape, arguments); err != nil {
				return err
			}
		}
	}
	if p.wholeTiles == 0 {
		return nil
	}
	arguments.tiles = entry(p.wholeAt)
	shape := cuda.Shape{X: p.wholeTiles * a.KVHeads, Threads: 32 * p.warps, Shared: a.prefillMemory(p.warps)}
	return set.launch(s, "paged_attention_prefill"+suffix, shape, arguments)
}
