package main

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
)

// attended describes a case of attention. All sequences have the same length, and their last tokens are queries: one
// token of each in decoding, all tokens in prefill. The blocks of 16 tokens are at random places of the memory.
type attended struct {
	group, heads, sequences, length, queries int
	cache                                    kernels.CacheType
}

const headSize, blockSize = 128, 16

func (a attended) benchmark(required goal) benchmark {
	kind := "prefill"
	if a.queries == 1 {
		kind = "decode"
	}
	if a.cache != kernels.CacheAuto {
		kind += "_" + a.cache.String()
	}
	name := fmt.Sprintf("%s group=%d heads=%d seqs=%d tokens=%d", kind, a.group, a.heads, a.sequences, a.length)
	return benchmark{name, required, a.prepare}
}

// A batch has the inputs of one launch of an attention kernel, on the CPU and on the GPU, and the memory of
// its outputs.
type batch struct {
	attended
	b                   *bench
	query, keys, values []byte
	tables              [][]int32
	call                kernels.PagedAttention
	out                 *cuda.Memory
}

func (a attended) prepare(b *bench) prepared {
	t := &batch{attended: a, b: b}
	perSequence := (a.length + blockSize - 1) / blockSize
	n, width := a.sequences*perSequence*blockSize*a.heads*headSize, a.group*a.heads*headSize
	var keys, values, query *cuda.Memory
	t.keys, keys = b.randomOf(a.cache, n)
	t.values, values = b.randomOf(a.cache, n)
	t.query, query = b.random(a.sequences * a.queries * width)
	t.out = b.alloc(2 * a.sequences * a.queries * width)
	places := b.rng.Perm(a.sequences * perSequence)
	for s := range a.sequences {
		var table []int32
		for _, place := range places[s*perSequence:][:perSequence] {
			table = append(table, int32(place))
		}
		t.tables = append(t.tables, table)
	}
	t.call = kernels.PagedAttention{AttentionShape: kernels.AttentionShape{Cache: a.cache, HeadSize: headSize, Heads: a.group * a.heads, KVHeads: a.heads, BlockSize: blockSize},
		Query: query.Pointer(), Out: t.out.Pointer(), Keys: keys.Pointer(), Values: values.Pointer(), TableStride: perSequence, Scale: float32(1 / math.Sqrt(headSize))}
	p := prepared{kernel: t.planned(0, a.sequences, a.queries), check: t.check, batchInvariant: t.batchInvariant}
	p.bytes = 2 * float64(a.cache.Bytes(kernels.F16)*a.sequences*a.length*a.heads*headSize)
	if a.queries > 1 {
		p.flops = 4 * float64(width) * float64(a.sequences) * float64(a.length) * float64(a.length+1) / 2
	}
	return p
}

// planned returns the call for count sequences of the batch. The parameter start is the index of the first of these
// sequences. The call computes only the last queries of each sequence; queries is their number.
func (t *batch) planned(start, count, queries int) kernels.PagedAttention {
	call, starts, lengths := t.call, []int32{0}, []int32{}
	for i := range count {
		starts, lengths = append(starts, int32((i+1)*queries)), append(lengths, int32(t.length))
	}
	call.Plan = mustGet(call.AttentionShape.Plan(t.b.context.Device(), starts, lengths, 0))
	call.Entries, call.QueryStart, call.SeqLens = t.b.numbers(call.Plan.Entries), t.b.numbers(starts), t.b.numbers(lengths)
	call.Tables = t.b.numbers(slices.Concat(t.tables[start : start+count]...))
	if call.Plan.PartBytes > 0 {
		call.Parts = t.b.alloc(call.Plan.PartBytes).Pointer()
		call.Arrived = t.b.upload(make([]byte, 4*call.Plan.Counters())).Pointer()
	}
	skipped := cuda.Pointer(2 * ((start+1)*t.queries - queries) * call.Heads * headSize)
	call.Query, call.Out = call.Query+skipped, call.Out+skipped
	return call
}

// check compares some rows of the output with rows in float64, and returns the largest error as a multiple of the
// allowed one. An output is a sum of values v, each multiplied by its attention weight p. The kernel rounds the
// weights and the output to F16, each with a relative error of at most 2^-11. It sums the weights after rounding
// them, so the error of a weight changes the output by at most 2^-11 p |v - output|. Hence check allows the error
//
//	2^-11 (|output| + sum of p |v - output|)
//
// and a little more for roundings to float32.
func (t *batch) check() (worst float64) {
	for _, s := range checked(t.sequences) {
		for _, query := range checked(t.queries) {
			for _, head := range checked(t.call.Heads) {
				row := ((s*t.queries+query)*t.call.Heads + head) * headSize
				got := contents(t.out, 2*row, 2*headSize)
				want, spread := t.row(s, t.length-t.queries+query+1, head/t.group, row)
				for d := range want {
					allowed := 1.01*0x1p-11*(math.Abs(want[d])+spread[d]) + 2e-5*spread[d] + 1e-7
					worst = max(worst, math.Abs(element(got, d)-want[d])/allowed)
				}
			}
		}
	}
	return worst
}

// row computes one head's row of the output in float64. Each element of spread is the sum of p |v - output| over the
// tokens. p and v are the weight and the value of a token.
func (t *batch) row(sequence, tokens, keyHead, query int) (out, spread []float64) {
	weights, largest := make([]float64, tokens), math.Inf(-1)
	place := func(token int) int {
		block := int(t.tables[sequence][token/blockSize])
		return ((block*t.heads+keyHead)*blockSize + token%blockSize) * headSize
	}
	var q, k, v [headSize]float64
	readHead(attention.F16, t.query, query, &q)
	for token := range weights {
		readHead(cpuTypes[t.cache], t.keys, place(token), &k)
		for d, x := range k {
			weights[token] += q[d] * x
		}
		weights[token] /= math.Sqrt(headSize)
		largest = max(largest, weights[token])
	}
	total := 0.0
	for token, x := range weights {
		weights[token] = math.Exp(x - largest)
		total += weights[token]
	}
	out, spread = make([]float64, headSize), make([]float64, headSize)
	forEach := func(add func(p, v float64, d int)) {
		for token, p := range weights {
			readHead(cpuTypes[t.cache], t.values, place(token), &v)
			for d, x := range v {
				add(p/total, x, d)
			}
		}
	}
	forEach(func(p, v float64, d int) { out[d] += p * v })
	forEach(func(p, v float64, d int) { spread[d] += p * math.Abs(v-out[d]) })
	return out, spread
}

func readHead(kind attention.DType, contents []byte, first int, head *[headSize]float64) {
	size := kind.Size()
	for d := range head {
		head[d] = float64(kind.Load(unsafe.Pointer(&contents[size*(first+d)])))
	}
}

// batchInvariant computes some chunks of some sequences again, each without the other sequences. A chunk is the last 1,
// 7, 37 or 512 queries of a sequence, if it has so many. batchInvariant reports whether all outputs have the same bits
// as in the batch.
func (t *batch) batchInvariant() bool {
	for _, s := range checked(t.sequences) {
		for _, chunk := range []int{1, 7, 37, 512} {
			if chunk <= t.queries && !t.chunk(s, chunk) {
				return false
			}
		}
	}
	return true
}

// chunk reports whether the outputs of a sequence's last tokens have the same bits if the kernel computes only these.
func (t *batch) chunk(sequence, tokens int) bool {
	row := 2 * t.call.Heads * headSize
	return t.b.repeats(t.planned(sequence, 1, tokens), t.out, ((sequence+1)*t.queries-tokens)*row, tokens*row)
}

// attentions returns the cases of decoding and of prefill. If small, they have fewer heads, sequences and tokens.
//
// Decoding must reach a fraction of the rate of copies, and 0.98 of FlashInfer's rate. Prefill must reach 0.85 of
// FlashInfer's rate. Cases with keys and values of 8 bits have no goal.
//
// This program does not run FlashInfer. It compares with another rate instead: for decoding with the rate of copies,
// and for prefill with the rate of PyTorch's flash attention. FlashInfer's rate and both other rates are known for an
// H200 (commit fb28d724; the rate of copies was 4,220 GB/s). The program assumes that the ratio of FlashInfer's rate to
// the other rate is the same on every GPU.
func attentions(small bool) (all []benchmark) {
	add := func(a attended, required goal) {
		if small {
			a.heads, a.sequences, a.length = 1, min(a.sequences, 2), min(a.length/16, 270)
			if a.queries > 1 {
				a.length /= 4
				a.queries = a.length
			}
		}
		all = append(all, a.benchmark(required))
	}
	for _, c := range []struct {
		attended
		minimum, flashInfer float64 // a share of the rate of copies; GB/s
	}{
		{attended{4, 8, 64, 4096, 1, kernels.CacheAuto}, 0.95, 4095}, {attended{4, 8, 256, 1024, 1, kernels.CacheAuto}, 0.95, 3912}, {attended{4, 8, 16, 16384, 1, kernels.CacheAuto}, 0.95, 4079},
		{attended{4, 8, 1, 32768, 1, kernels.CacheAuto}, 0.72, 2709}, {attended{4, 8, 8, 4096, 1, kernels.CacheAuto}, 0.72, 2715}, {attended{8, 8, 64, 4096, 1, kernels.CacheAuto}, 0.95, 4065},
		{attended{8, 4, 64, 8192, 1, kernels.CacheAuto}, 0.95, 4110}, {attended{1, 32, 64, 1024, 1, kernels.CacheAuto}, 0.95, 4230}, {attended{1, 40, 16, 2048, 1, kernels.CacheAuto}, 0.95, 4154},
	} {
		add(c.attended, goal{max(c.minimum, 0.98*c.flashInfer/4220), ofCopy})
	}
	for _, c := range []struct {
		attended
		flashInfer, flash float64 // TFLOP/s
	}{{attended{4, 8, 1, 2048, 2048, kernels.CacheAuto}, 198, 192}, {attended{4, 8, 8, 2048, 2048, kernels.CacheAuto}, 295, 291}, {attended{4, 8, 1, 16384, 16384, kernels.CacheAuto}, 329, 323}} {
		add(c.attended, goal{0.85 * c.flashInfer / c.flash, "flash"})
	}
	for _, a := range []attended{{4, 8, 64, 4096, 1, kernels.CacheE4M3}, {4, 8, 64, 4096, 1, kernels.CacheE5M2}, {4, 8, 8, 4096, 1, kernels.CacheE4M3},
		{4, 8, 1, 2048, 2048, kernels.CacheE4M3}, {4, 8, 8, 2048, 2048, kernels.CacheE4M3}} {
		add(a, goal{})
	}
	return all
}
