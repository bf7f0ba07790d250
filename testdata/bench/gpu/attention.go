package main

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
)

// attended are sequences of one length whose last tokens are queries: one in decoding, all in prefill. Blocks of 16 tokens lie
// anywhere in memory.
type attended struct {
	group, heads, sequences, length, queries int
	required                                 goal
}

const headSize, blockSize = 128, 16

func (a attended) name() string {
	kind := "prefill"
	if a.queries == 1 {
		kind = "decode"
	}
	return fmt.Sprintf("%s group=%d heads=%d seqs=%d tokens=%d", kind, a.group, a.heads, a.sequences, a.length)
}

func (a attended) goal() goal { return a.required }

// A batch is what a launch of attention needs, on the GPU.
type batch struct {
	attended
	b            *bench
	keys, values []byte
	query        []byte
	tables       [][]int32
	call         kernels.PagedAttention
	out          *cuda.Memory
}

func (a attended) prepare(b *bench) (p prepared, err error) {
	t := &batch{attended: a, b: b}
	perSequence := (a.length + blockSize - 1) / blockSize
	n := a.sequences * perSequence * blockSize * a.heads * headSize
	var keys, values, query *cuda.Memory
	if t.keys, keys, err = b.random(n); err != nil {
		return p, err
	}
	if t.values, values, err = b.random(n); err != nil {
		return p, err
	}
	width := a.group * a.heads * headSize
	if t.query, query, err = b.random(a.sequences * a.queries * width); err != nil {
		return p, err
	}
	if t.out, err = b.alloc(2 * a.sequences * a.queries * width); err != nil {
		return p, err
	}
	places := b.rng.Perm(a.sequences * perSequence)
	for s := range a.sequences {
		var table []int32
		for _, place := range places[s*perSequence:][:perSequence] {
			table = append(table, int32(place))
		}
		t.tables = append(t.tables, table)
	}
	t.call = kernels.PagedAttention{AttentionShape: kernels.AttentionShape{HeadSize: headSize, Heads: a.group * a.heads, KVHeads: a.heads, BlockSize: blockSize},
		Query: query.Pointer(), Out: t.out.Pointer(), Keys: keys.Pointer(), Values: values.Pointer(), TableStride: perSequence, Scale: float32(1 / math.Sqrt(headSize))}
	call, err := t.planned(0, a.sequences, a.queries)
	if err != nil {
		return p, err
	}
	p.bytes = 2 * 2 * float64(a.sequences*a.length*a.heads*headSize)
	if a.queries > 1 {
		p.flops = 4 * float64(width) * float64(a.sequences) * float64(a.length) * float64(a.length+1) / 2
	}
	p.launch = func() error { return call.Launch(b.set, b.stream) }
	p.check, p.alone = t.check, t.alone
	return p, nil
}

// planned returns the call for some sequences, from one on, and the last of their queries.
func (t *batch) planned(first, count, queries int) (kernels.PagedAttention, error) {
	call, width := t.call, t.call.Heads*headSize
	starts, lengths := []int32{0}, []int32{}
	for i := range count {
		starts, lengths = append(starts, int32((i+1)*queries)), append(lengths, int32(t.length))
	}
	var err error
	if call.Plan, err = call.AttentionShape.Plan(t.b.context.Device(), starts, lengths, 0); err != nil {
		return call, err
	}
	for _, list := range []struct {
		numbers []int32
		to      *cuda.Pointer
	}{{call.Plan.Entries, &call.Entries}, {starts, &call.QueryStart}, {lengths, &call.SeqLens}, {slices.Concat(t.tables[first : first+count]...), &call.Tables}} {
		m, err := t.b.int32s(list.numbers)
		if err != nil {
			return call, err
		}
		*list.to = m.Pointer()
	}
	if call.Plan.PartBytes > 0 {
		parts, err := t.b.alloc(call.Plan.PartBytes)
		if err != nil {
			return call, err
		}
		call.Parts = parts.Pointer()
	}
	skipped := cuda.Pointer(2 * ((first+1)*t.queries - queries) * width)
	call.Query, call.Out = call.Query+skipped, call.Out+skipped
	return call, nil
}

// check compares some rows with float64. An error of 2^-9 of the sum of |p v| is allowed: weights are rounded to F16, and so is the output.
func (t *batch) check() (float64, error) {
	worst, got := 0.0, make([]byte, 2*headSize)
	for _, s := range checked(t.sequences) {
		for _, query := range checked(t.queries) {
			for _, head := range checked(t.call.Heads) {
				row := ((s*t.queries+query)*t.call.Heads + head) * headSize
				if err := t.out.Read(2*row, got); err != nil {
					return 0, err
				}
				want, size := t.row(s, t.length-t.queries+query+1, head/t.group, row)
				for d := range want {
					if e := math.Abs(at(got, d)-want[d]) / (size[d] * 0x1p-9); !(e <= worst) {
						worst = e
					}
				}
			}
		}
	}
	return worst, nil
}

// row computes a row in float64, with the sums of |p v|.
func (t *batch) row(sequence, tokens, keyHead, query int) (out, size []float64) {
	logits, most := make([]float64, tokens), math.Inf(-1)
	place := func(token int) int {
		block := int(t.tables[sequence][token/blockSize])
		return ((block*t.heads+keyHead)*blockSize + token%blockSize) * headSize
	}
	for token := range logits {
		k := place(token)
		for d := range headSize {
			logits[token] += at(t.query, query+d) * at(t.keys, k+d)
		}
		logits[token] /= math.Sqrt(headSize)
		most = max(most, logits[token])
	}
	out, size = make([]float64, headSize), make([]float64, headSize)
	total := 0.0
	for token, x := range logits {
		p, v := math.Exp(x-most), place(token)
		total += p
		for d := range headSize {
			out[d] += p * at(t.values, v+d)
			size[d] += p * math.Abs(at(t.values, v+d))
		}
	}
	for d := range out {
		out[d], size[d] = out[d]/total, size[d]/total
	}
	return out, size
}

// alone computes some sequences alone, and of prefill the last tokens as chunks: of one token, which is a decoding step, and of more.
func (t *batch) alone() (bool, error) {
	for _, s := range checked(t.sequences) {
		for _, chunk := range []int{1, 7, 37, 512} {
			if chunk > t.queries {
				break
			}
			if same, err := t.chunk(s, chunk); err != nil || !same {
				return false, err
			}
		}
	}
	return true, nil
}

// chunk reports whether the last tokens of a sequence have the same bits when they are computed alone.
func (t *batch) chunk(sequence, tokens int) (bool, error) {
	row := 2 * t.call.Heads * headSize
	where := ((sequence+1)*t.queries - tokens) * row
	before, after := make([]byte, tokens*row), make([]byte, tokens*row)
	if err := t.out.Read(where, before); err != nil {
		return false, err
	}
	call, err := t.planned(sequence, 1, tokens)
	if err != nil {
		return false, err
	}
	if err := t.b.stream.Fill(t.out, where, len(after), 0xff); err != nil {
		return false, err
	}
	if err := errors.Join(call.Launch(t.b.set, t.b.stream), t.b.stream.Synchronize()); err != nil {
		return false, err
	}
	err = t.out.Read(where, after)
	return bytes.Equal(before, after), err
}

// attentions are cases of decoding and of prefill, or the same with fewer sequences and tokens.
//
// Decoding is to reach a share of the rate of copies, and 0.98 of FlashInfer, prefill 0.85 of FlashInfer. FlashInfer is not
// measured here, so its rates on an H200 (commit fb28d724) are compared with two that are measured: with copies, which had
// 4,220 GB/s there, and with PyTorch's flash attention.
func attentions(small bool) (all []benchmark) {
	for _, c := range []struct {
		attended
		least, flashInfer float64 // a share of the rate of copies; GB/s
	}{
		{attended{4, 8, 64, 4096, 1, goal{}}, 0.95, 4095}, {attended{4, 8, 256, 1024, 1, goal{}}, 0.95, 3912}, {attended{4, 8, 16, 16384, 1, goal{}}, 0.95, 4079},
		{attended{4, 8, 1, 32768, 1, goal{}}, 0.72, 2709}, {attended{4, 8, 8, 4096, 1, goal{}}, 0.72, 2715}, {attended{8, 8, 64, 4096, 1, goal{}}, 0.95, 4065},
		{attended{8, 4, 64, 8192, 1, goal{}}, 0.95, 4110}, {attended{1, 32, 64, 1024, 1, goal{}}, 0.95, 4230}, {attended{1, 40, 16, 2048, 1, goal{}}, 0.95, 4154},
	} {
		c.required = goal{max(c.least, 0.98*c.flashInfer/4220), ofCopy}
		all = append(all, c.attended)
	}
	for _, c := range []struct {
		attended
		flashInfer, flash float64 // TFLOP/s
	}{
		{attended{4, 8, 1, 2048, 2048, goal{}}, 198, 192}, {attended{4, 8, 8, 2048, 2048, goal{}}, 295, 291}, {attended{4, 8, 1, 16384, 16384, goal{}}, 329, 323},
	} {
		c.required = goal{0.85 * c.flashInfer / c.flash, "flash"}
		all = append(all, c.attended)
	}
	if small {
		for i := range all {
			a := all[i].(attended)
			a.heads, a.sequences, a.length = 1, min(a.sequences, 2), min(a.length/16, 270)
			if a.queries > 1 {
				a.length /= 4
				a.queries = a.length
			}
			all[i] = a
		}
	}
	return all
}

// cases are all, or small ones for tests.
func cases(small bool) []benchmark {
	pick := func(normal, less int) int {
		if small {
			return less
		}
		return normal
	}
	all := rowwises(pick)
	all = append(all, rotated{pick(4096, 3), pick(40, 2)}, argmax{pick(64, 2), pick(128256, 1000)}, embedded{pick(8192, 5), pick(32000, 50), pick(4096, 264)},
		written{pick(8192, 5), pick(8, 2), 128}, copied{pick(1000, 3), pick(4, 2), pick(64<<10, 4096)},
		swapped{pick(1000, 3), pick(64<<10, 4096), false}, swapped{pick(1000, 3), pick(64<<10, 4096), true})
	return append(append(all, attentions(small)...), products(small)...)
}
