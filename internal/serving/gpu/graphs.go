package gpu

import (
	"errors"
	"math/bits"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/model"
)

// maxGraphs is the largest number of shapes in graphs. If graphs has so many and a step has a new shape, run first
// removes all graphs. Up to 256 sequences have 19 numbers of rows; each occurs with some numbers of partitions.
const maxGraphs = 256

// graphs holds the captured decoding steps of each shape. The first step of a shape launches its kernels one by one.
// The driver compiles them then, because it cannot compile during a capture. The second step is captured.
type graphs struct {
	byShape map[string]*cuda.Graph // by shape; nil after the first step
}

// run runs a step of the given shape. The function launch adds the kernels of the step to the stream. Steps before the
// last call of close do not count as steps of a shape.
//   - In the first step of a shape, and in each step of the empty shape, run only calls launch.
//   - In the second step of a shape, run captures the kernels that launch adds. They become a graph, and run launches
//     this graph.
//   - In each further step of the shape, run launches the graph again.
func (g *graphs) run(shape string, s *cuda.Stream, launch func() error) error {
	graph, known := g.byShape[shape]
	switch {
	case shape == "":
		return launch()
	case !known:
		if len(g.byShape) >= maxGraphs {
			if err := g.close(); err != nil {
				return err
			}
		}
		g.byShape[shape] = nil
		return launch()
	case graph == nil:
		var err error
		if graph, err = s.Capture(launch); err != nil {
			return err
		}
		g.byShape[shape] = graph
	}
	return graph.Launch(s)
}

// close removes all graphs. It must be called before memory that they use is freed.
func (g *graphs) close() error {
	var errs []error
	for _, graph := range g.byShape {
		errs = append(errs, graph.Close())
	}
	clear(g.byShape)
	return errors.Join(errs...)
}

// powerOfTwo returns the smallest power of two that is at least n.
func powerOfTwo(n int) int { return 1 << bits.Len(uint(max(n, 1)-1)) }

// paddedRows returns the number of rows of a decoding step of n sequences in a graph: a power of two up to 64, and a
// multiple of 16 above. A product of up to 64 rows takes about as long as reading the weights, so more rows cost little.
// Above 64 rows, the time grows with the number of rows.
func paddedRows(n int) int {
	if n <= 64 {
		return powerOfTwo(n)
	}
	return (n + 15) / 16 * 16
}

// padded returns a decoding step with more tokens, so that few shapes of graphs occur. The number of entries of a block
// table becomes a power of two. The added tokens belong to no sequence: there are as many sequences more, without
// tokens, so that the arrays of the inputs have the size of the shape. In a decoding step, each sequence has one token.
// If b is another step, or if the padded batch would be too large, padded returns b and false.
func (r *Runner) padded(b *model.Batch) (p *model.Batch, decode bool) {
	n := len(b.SeqLens)
	rows := min(paddedRows(n), r.config.MaxNumBatchedTokens)
	if len(b.Tokens) != n || n > rows {
		return b, false
	}
	p = &r.batch
	*p = model.Batch{Tokens: append(p.Tokens[:0], b.Tokens...), Positions: append(p.Positions[:0], b.Positions...),
		QueryStart: append(p.QueryStart[:0], b.QueryStart...), SeqLens: append(p.SeqLens[:0], b.SeqLens...), Logits: b.Logits, States: b.States,
		Blocks: padBlocks(&p.Blocks, &b.Blocks, n, rows), Others: p.Others[:0]}
	for i := range b.Others {
		p.Others = append(p.Others, padBlocks(&model.Blocks{}, &b.Others[i], n, rows))
	}
	for i := n; i < rows; i++ {
		p.Tokens, p.Positions = append(p.Tokens, 0), append(p.Positions, 0)
		p.QueryStart, p.SeqLens = append(p.QueryStart, int32(n)), append(p.SeqLens, 0)
	}
	return p, true
}

// padBlocks returns the slots and block tables of the n sequences in b, and adds slots of -1 and tables of zeros for
// sequences n to rows-1. It reuses the memory of old.
func padBlocks(old, b *model.Blocks, n, rows int) model.Blocks {
	p := model.Blocks{Slots: append(old.Slots[:0], b.Slots...), BlockTables: old.BlockTables[:0], TableStride: powerOfTwo(b.TableStride)}
	for i := range n {
		p.BlockTables = append(p.BlockTables, b.BlockTables[i*b.TableStride:(i+1)*b.TableStride]...)
		p.BlockTables = append(p.BlockTables, make([]int32, p.TableStride-b.TableStride)...)
	}
	p.BlockTables = append(p.BlockTables, make([]int32, (rows-n)*p.TableStride)...)
	for range rows - n {
		p.Slots = append(p.Slots, -1)
	}
	return p
}
