package speed

import (
	"fmt"
	"io"
	"runtime"

	"llmmemory/internal/attention"
)

// Options say what Print and Measure do.
type Options struct {
	Rounds  int // of each measurement; the median is printed
	Threads int // at most; 0: one for each processor

	// CPU measures the processor time of one thread, for machines on which other
	// programs keep the processors busy.
	CPU  bool
	Only string // the one table to print: decode, quantized, compute, move or paged; "": all
}

// Print writes the tables.
func Print(w io.Writer, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	o = o.complete()
	for _, part := range []struct {
		name  string
		print func(io.Writer, Options) error
	}{{"decode", decodeTable}, {"quantized", quantizedTable}, {"compute", computeTable}, {"move", moveTable},
		{"paged", pagedTable}} {
		if o.Only != "" && o.Only != part.name {
			continue
		}
		if err := part.print(w, o); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	return nil
}

func (o Options) check() error {
	if o.Rounds < 1 || o.Threads < 0 {
		return fmt.Errorf("%d rounds, %d threads: want at least 1 round", o.Rounds, o.Threads)
	}
	return nil
}

// complete fills in the number of threads.
func (o Options) complete() Options {
	if o.Threads == 0 {
		o.Threads = runtime.NumCPU()
	}
	if o.CPU {
		o.Threads = 1
	}
	return o
}

// threadCounts are one thread, and all.
func (o Options) threadCounts() []int {
	if o.Threads == 1 {
		return []int{1}
	}
	return []int{1, o.Threads}
}

// decodeTable compares decoding with reading the same bytes.
func decodeTable(w io.Writer, o Options) error {
	fmt.Fprintf(w, "%-44s %9s %9s %9s %9s\n", "decode, 32 heads on 8 of 128, blocks scattered", "read GB/s", "GB/s",
		"of read", "to reach")
	for _, d := range []attention.DType{attention.F16, attention.BF16} {
		for _, threads := range o.threadCounts() {
			b, err := newBench(d, attention.LayoutTile, memory, threads)
			if err != nil {
				return err
			}
			for _, tokens := range []int{4096, 16384} {
				tables := b.tables(tokens, true)
				t := o.alternate(b.decode(b.batch(1, tokens, 1), tables), b.reading(1, tables))
				bytes := float64(tokens / blockSize * b.cache.BlockStride)
				fmt.Fprintf(w, "%-44s %9.1f %9.1f %8.0f%% %9s\n", fmt.Sprintf("%v, context %d, %d threads", d, tokens, threads),
					bytes/float64(median(t[1])), bytes/float64(median(t[0])), 100*ratio(t[1], t[0]), "80%")
			}
			b.close()
		}
	}
	return nil
}

// quantizedTable compares 8-bit types with f16.
func quantizedTable(w io.Writer, o Options) error {
	fmt.Fprintf(w, "%-44s %9s %9s %9s\n", "decode, tokens/s against f16", "GB/s", "times", "to reach")
	for _, threads := range o.threadCounts() {
		base, err := newBench(attention.F16, attention.LayoutTile, memory, threads)
		if err != nil {
			return err
		}
		for _, d := range []attention.DType{attention.E4M3, attention.E5M2, attention.Int8} {
			b, err := newBench(d, attention.LayoutTile, memory, threads)
			if err != nil {
				return err
			}
			for i, tokens := range []int{4096, 16384} {
				t := o.alternate(base.decode(base.batch(1, tokens, 1), base.tables(tokens, true)),
					b.decode(b.batch(1, tokens, 1), b.tables(tokens, true)))
				bytes := float64(tokens / blockSize * b.cache.BlockStride)
				fmt.Fprintf(w, "%-44s %9.1f %9.2f %9s\n", fmt.Sprintf("%v, context %d, %d threads", d, tokens, threads),
					bytes/float64(median(t[1])), ratio(t[0], t[1]), []string{"1.2", "1.6"}[i])
			}
			b.close()
		}
		base.close()
	}
	return nil
}
