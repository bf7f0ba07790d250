package main

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
)

// attended describes sequences of the same length. In decoding, the last token of each is a query; in prefill,
// all tokens are. The blocks of 16 tokens lie anywhere in memory.
type attended struct {
	group, heads, sequences, length, queries int
}

const headSize, blockSize = 128, 16

func (a attended) name() string {
	kind := "prefill"
	if a.queries == 1 {
		kind = "decode"
	}
	return fmt.Sprintf("%s group=%d heads=%d seqs=%d tokens=%d", kind, a.group, a.heads, a.sequences, a.length)
}

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

// planned returns the attention call for count sequences, beginning with the sequence first. The last tokens of
// each sequence, as many as queries says, are queries.
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

// check compares some rows with a computation in float64. It allows an error of 2^-9 of the sum of |p v|,
// because weights and output are rounded to F16.
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

// row computes one output row in float64, and the sums of |p v|.
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

// alone checks that some sequences give the same bits when they are computed alone. In prefill it computes the
// last token as a decoding step.
func (t *batch) alone() (bool, error) {
	for _, s := range checked(t.sequences) {
		rows := 2 * t.call.Heads * headSize
		where := (s+1)*t.queries*rows - rows
		before, after := make([]byte, rows), make([]byte, rows)
		if err := t.out.Read(where, before); err != nil {
			return false, err
		}
		call, err := t.planned(s, 1, 1)
		if err != nil {
			return false, err
		}
		if err := t.b.stream.Fill(t.out, where, rows, 0xff); err != nil {
			return false, err
		}
		if err := call.Launch(t.b.set, t.b.stream); err != nil {
			return false, err
		}
		if err := t.b.stream.Synchronize(); err != nil {
			return false, err
		}
		if err := t.out.Read(where, after); err != nil || !bytes.Equal(before, after) {
			return false, err
		}
	}
	return true, nil
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
	all = append(all, rotated{pick(4096, 3), pick(40, 2)}, argmax{pick(64, 2), pick(128256, 1000)},
		written{pick(8192, 5), pick(8, 2), 128}, swapped{pick(1000, 3), pick(64<<10, 4096), false}, swapped{pick(1000, 3), pick(64<<10, 4096), true})
	if small {
		return append(all, attended{2, 1, 2, 300, 1}, attended{2, 1, 1, 40, 40})
	}
	for _, a := range []attended{{4, 8, 64, 4096, 1}, {4, 8, 256, 1024, 1}, {4, 8, 16, 16384, 1}, {4, 8, 1, 32768, 1}, {4, 8, 8, 4096, 1}, {8, 8, 64, 4096, 1},
		{8, 4, 64, 8192, 1}, {1, 32, 64, 1024, 1}, {1, 40, 16, 2048, 1}, {4, 8, 1, 2048, 2048}, {4, 8, 8, 2048, 2048}, {4, 8, 1, 16384, 16384}} {
		all = append(all, a)
	}
	return all
}
