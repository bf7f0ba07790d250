package speed

import (
	"fmt"
	"io"

	"llmmemory/internal/attention"
	"llmmemory/internal/kvstore"
)

// Figures are the measurements of attention that llmsim draws beside the paper's
// figures 18 and 19: decoding one token of each sequence, and swapping. Times are
// medians, in microseconds.
type Figures struct {
	Machine string      `json:"machine"`
	Date    string      `json:"date"`
	Threads int         `json:"threads"`
	Shape   string      `json:"shape"`
	Paged   []Paged     `json:"paged"`
	Sizes   []BlockSize `json:"block_sizes"`
}

// Paged is decoding over blocks of 16 tokens at random places in 1 GiB, and over blocks
// that lie one after the other (Fig. 18a).
type Paged struct {
	Batch      int     `json:"batch"`
	Context    int     `json:"context"`
	Micros     float64 `json:"paged_us"`
	Contiguous float64 `json:"contiguous_us"`
	Ratio      float64 `json:"ratio"` // the median over the rounds
}

// A BlockSize has the times of decoding and swapping with blocks of one size.
type BlockSize struct {
	Tokens int     `json:"tokens"`
	Decode float64 `json:"decode_us"` // 8 sequences of 1,024 tokens
	Swap   float64 `json:"swap_us"`   // 256 tokens of 32 layers out and in again
}

// Measure measures the figures. The caller fills in Machine and Date.
func Measure(o Options) (*Figures, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o = o.complete()
	f := &Figures{Threads: o.Threads, Shape: "32 query heads on 8 of 128, f16"}
	var err error
	if f.Paged, err = pagedRows(o, []int{8, 32}, []int{64, 128, 256, 1024, 4096}); err != nil {
		return nil, err
	}
	for tokens := 1; tokens <= 256; tokens *= 2 {
		size, err := blockSizeRow(o, tokens)
		if err != nil {
			return nil, err
		}
		f.Sizes = append(f.Sizes, size)
	}
	return f, nil
}

// pagedRows compares scattered blocks with contiguous ones.
func pagedRows(o Options, batches, contexts []int) ([]Paged, error) {
	b, err := newBench(attention.F16, attention.LayoutTile, memory, o.Threads)
	if err != nil {
		return nil, err
	}
	defer b.close()
	var rows []Paged
	for _, seqs := range batches {
		for _, tokens := range contexts {
			paged := b.decode(b.batch(seqs, tokens, 1), b.tables(tokens, true))
			contiguous := b.decode(b.batch(seqs, tokens, 1), b.tables(tokens, false))
			t := o.alternate(paged, contiguous)
			rows = append(rows, Paged{seqs, tokens, micros(t[0]), micros(t[1]), ratio(t[0], t[1])})
		}
	}
	return rows, nil
}

// pagedTable is the paper's Fig. 18a.
func pagedTable(w io.Writer, o Options) error {
	fmt.Fprintf(w, "%-44s %9s %9s %9s %9s\n", "Fig. 18a: paged against contiguous, f16", "us", "contig.", "times",
		"to reach")
	rows, err := pagedRows(o, []int{1, 8, 32}, []int{64, 256, 1024, 4096, 16384})
	for _, r := range rows {
		fmt.Fprintf(w, "%-44s %9.1f %9.1f %9.3f %9s\n", fmt.Sprintf("batch %d, context %d", r.Batch, r.Context), r.Micros,
			r.Contiguous, r.Ratio, "1.03")
	}
	return err
}

// blockSizeRow measures blocks of the given number of tokens.
func blockSizeRow(o Options, tokens int) (BlockSize, error) {
	row := BlockSize{Tokens: tokens}
	s := shape(attention.F16)
	s.BlockSize = tokens
	b, err := newBenchOf(s, memory/4, o.Threads)
	if err != nil {
		return row, err
	}
	defer b.close()
	row.Decode = micros(o.alternate(b.decode(b.batch(8, 1024, 1), b.tables(1024, true)))[0])
	const layers, swapped = 32, 256
	n := swapped / tokens
	store, err := kvstore.New(kvstore.Config{Shape: s, Layers: layers, NumBlocks: 4 * n, HostBlocks: n}, b.pool)
	if err != nil {
		return row, err
	}
	defer store.Close()
	out, in := make([]kvstore.Pair, n), make([]kvstore.Pair, n)
	for i := range n {
		out[i] = kvstore.Pair{Src: int32(i * 3 % (4 * n)), Dst: int32(i)}
		in[i] = kvstore.Pair{Src: int32(i), Dst: int32(4*n - 1 - i)}
	}
	row.Swap = micros(o.alternate(func(int) {
		must(store.SwapOut(out))
		must(store.SwapIn(in))
	})[0])
	return row, nil
}
