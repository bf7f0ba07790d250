package gpu

import (
	"errors"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/model"
)

// mostGraphs is the number of graphs that are kept. When there would be more, all are removed.
const mostGraphs = 128

// graphs are captured decoding steps. The first step of a shape launches its kernels one by one, so that all are
// compiled. The second one is captured.
type graphs struct {
	of map[string]*cuda.Graph // by shape; nil after the first step
}

// run launches a step of the given shape. launch adds its kernels to the stream.
func (g *graphs) run(shape string, s *cuda.Stream, launch func() error) error {
	graph, known := g.of[shape]
	switch {
	case shape == "":
		return launch()
	case !known:
		if len(g.of) >= mostGraphs {
			if err := g.close(); err != nil {
				return err
			}
		}
		if g.of == nil {
			g.of = map[string]*cuda.Graph{}
		}
		g.of[shape] = nil
		return launch()
	case graph == nil:
		var err error
		if graph, err = s.Capture(launch); err != nil {
			return err
		}
		g.of[shape] = graph
	}
	return graph.Launch(s)
}

// close removes all graphs. It must be called when memory that they use is freed.
func (g *graphs) close() error {
	var errs []error
	for _, graph := range g.of {
		errs = append(errs, graph.Close())
	}
	clear(g.of)
	return errors.Join(errs...)
}

// powerOfTwo returns the smallest power of two that is at least n.
func powerOfTwo(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// padded returns a batch with as many sequences as the next power of two, and block tables as wide as the next one, so
// that few shapes of graphs occur. The keys and values of the added tokens are dropped. It returns b itself if b is not a
// decoding step, with one token of each sequence, or if the padded one would be too large.
func (r *Runner) padded(b *model.Batch) (p *model.Batch, decode bool) {
	n := len(b.SeqLens)
	rows := powerOfTwo(n)
	if len(b.Tokens) != n || rows > r.config.MaxNumBatchedTokens {
		return b, false
	}
	p = &r.batch
	*p = model.Batch{Tokens: append(p.Tokens[:0], b.Tokens...), Positions: append(p.Positions[:0], b.Positions...),
		QueryStart: append(p.QueryStart[:0], b.QueryStart...), SeqLens: append(p.SeqLens[:0], b.SeqLens...), Logits: b.Logits,
		Blocks: padBlocks(&p.Blocks, &b.Blocks, n, rows), Others: p.Others[:0]}
	for i := range b.Others {
		p.Others = append(p.Others, padBlocks(&model.Blocks{}, &b.Others[i], n, rows))
	}
	for i := n; i < rows; i++ {
		p.Tokens, p.Positions = append(p.Tokens, 0), append(p.Positions, 0)
		p.QueryStart, p.SeqLens = append(p.QueryStart, int32(i+1)), append(p.SeqLens, 1)
	}
	return p, true
}

// padBlocks returns the blocks of n sequences for a number of rows, in the memory of old.
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
