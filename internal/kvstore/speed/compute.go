package speed

import (
	"fmt"
	"io"

	"llmmemory/internal/attention"
	"llmmemory/internal/parallel"
)

// A peak multiplies and adds on all workers of a pool.
type peak struct{ rounds, operations int }

// Do is the work of one worker; see parallel.Task.
func (p *peak) Do(_, part int) {
	n := multiply(p.rounds)
	if part == 0 {
		p.operations = n
	}
}

// peaking runs at the processor's limit for a while.
func peaking(pool *parallel.Pool, p *peak) work {
	return func(int) { pool.Run(pool.Size(), p) }
}

// computeTable compares prefill and cascade with the processor's limit.
func computeTable(w io.Writer, o Options) error {
	fmt.Fprintf(w, "%-44s %9s %9s %9s %9s\n", "prefill and cascade, f16", "peak", "GFLOP/s", "of peak", "to reach")
	for _, threads := range o.threadCounts() {
		b, err := newBench(attention.F16, attention.LayoutTile, memory/4, threads)
		if err != nil {
			return err
		}
		p := &peak{rounds: 200_000}
		for _, cached := range []int{0, 4096} {
			const queries = 512
			tables := b.tables(cached+queries, true)
			t := o.alternate(b.decode(b.batch(1, cached+queries, queries), tables), peaking(b.pool, p))
			operations := 4 * headSize * queryHeads * (float64(queries)*float64(cached) + float64(queries)*(queries+1)/2)
			limit := float64(p.operations*threads) / float64(median(t[1]))
			fmt.Fprintf(w, "%-44s %9.0f %9.0f %8.0f%% %9s\n", fmt.Sprintf("512 tokens on %d cached, %d threads", cached,
				threads),
				limit, operations/float64(median(t[0])), 100*operations/float64(p.operations*threads)*ratio(t[1], t[0]), "50%")
		}
		b.cascade(w, o, p, threads)
		b.close()
	}
	return nil
}

// cascade compares 32 sequences that share 4,096 tokens with and without
// reading them once. Without, the plan goes from head to head, so that the
// prefix of one head stays in the cache.
func (b *bench) cascade(w io.Writer, o Options, p *peak, threads int) {
	const seqs, prefix, own = 32, 4096, 64
	shared, plain := b.batch(seqs, prefix+own, 1), b.batch(seqs, prefix+own, 1)
	tables := b.tables(prefix+own, true)
	for _, a := range []*attention.Batch{shared, plain} {
		for s := range seqs {
			table := a.BlockTables[s*a.TableStride:][:a.TableStride]
			copy(table, tables[0])
			copy(table[prefix/blockSize:], tables[1+s%(len(tables)-1)])
		}
	}
	shared.CommonPrefix = prefix
	run := func(a *attention.Batch) work {
		return func(int) { must(b.runner.Forward(b.cache, a)) }
	}
	t := o.alternate(run(shared), run(plain), peaking(b.pool, p))
	operations := 4.0 * headSize * queryHeads * seqs * (prefix + own)
	limit := float64(p.operations*threads) / float64(median(t[2]))
	fmt.Fprintf(w, "%-44s %9.0f %9.0f %8.0f%% %9s\n", fmt.Sprintf("32 sequences share 4096, %d threads", threads),
		limit, operations/float64(median(t[0])), 100*operations/float64(p.operations*threads)*ratio(t[2], t[0]), "50%")
	fmt.Fprintf(w, "%-44s %9s %9.0f %9.2f %9s\n", "  times without cascade", "", operations/float64(median(t[1])),
		ratio(t[1], t[0]), "1.4")
}
