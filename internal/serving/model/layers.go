package model

import (
	"fmt"

	"llmmemory/internal/serving/model/matrix"
	"llmmemory/internal/serving/model/weights"
)

// load fills in m. After an error, m can be closed.
func (l *loader) load(m *Model) error {
	c := l.config
	m.norm = l.norm(l.names.norm)
	if c.Rope == nil {
		m.positions = l.table(l.names.positions, c.MaxModelLen+c.PositionOffset)
	}
	if !c.TieEmbeddings {
		m.embed = l.table(l.names.embed, c.VocabSize)
	}
	l.head(m)
	l.perLayer(m)
	for i := 0; i < c.NumLayers && l.err == nil; i++ {
		m.layers = append(m.layers, l.layer(i))
	}
	return l.err
}

func (l *loader) head(m *Model) {
	c, name := l.config, l.names.head
	if c.TieEmbeddings {
		name = l.names.embed
	}
	t := l.tensor(name + ".weight")
	l.expect(t, c.VocabSize, c.HiddenSize)
	n := l.part.size()
	for rank := range n {
		columns := Columns{c.VocabSize * rank / n, c.VocabSize * (rank + 1) / n}
		if c.TieEmbeddings { // each part has the embeddings of all tokens, and multiplies by some of their panels
			panels := (c.VocabSize + matrix.Panel - 1) / matrix.Panel
			columns = Columns{panels * rank / n * matrix.Panel, min(panels*(rank+1)/n*matrix.Panel, c.VocabSize)}
		}
		m.vocab = append(m.vocab, columns)
	}
	rows := span{m.vocab[l.part.Rank].Start, m.vocab[l.part.Rank].End}
	if c.TieEmbeddings {
		rows = span{0, c.VocabSize}
	}
	if rows.len() < 1 {
		l.fail("a vocabulary of %d cannot be shared out among %d workers", c.VocabSize, n)
	}
	if l.err != nil {
		return
	}
	source := stack{tensors: []*weights.Tensor{t},
		cuts: []*cut{{source: t, rows: []span{rows}, width: t.Cols, cols: span{0, t.Cols}, block: t.Block()}}}
	m.head = linear{parts: []*matrix.Matrix{l.pack(&source)}, out: rows.len()}
}

func (l *loader) layer(i int) (layer layer) {
	c, n := l.config, l.names
	named := func(name string) string { return tensorName(name, i) }
	if c.NormPlace != NormAfter && c.Mixes(i) {
		layer.attnNorm = l.norm(named(n.attnNorm))
	}
	if c.NormPlace != NormAfter && c.feeds(i) {
		layer.mlpNorm = l.norm(named(n.mlpNorm))
	}
	if c.NormPlace != NormBefore {
		layer.attnPost, layer.mlpPost = l.norm(named(n.attnPost)), l.norm(named(n.mlpPost))
	}
	switch {
	case !c.Mixes(i):
	case c.Recurrent(i):
		layer.recurrent = l.recurrent(i)
	case c.Latent != nil:
		l.latent(&layer, named)
	case c.Mixed != nil:
		l.mixed(&layer, i)
	default:
		l.attention(&layer, named)
	}
	switch {
	case !c.feeds(i):
	case c.mixture(i):
		l.mixture(&layer, i)
	default:
		layer.mlp = l.mlp(mlpShape{1, 0, c.intermediate(i), c.MLPBias, true}, named(n.gate), named(n.upProj), named(n.downProj))
	}
	return layer
}

func (l *loader) attention(layer *layer, named func(name string) string) {
	c, n := l.config, l.names
	query, kv := c.NumHeads*c.HeadDim, c.NumKVHeads*c.HeadDim
	layer.qNorm, layer.kNorm = l.qkNorm(named(n.qNorm), query), l.qkNorm(named(n.kNorm), kv)
	if c.Sinks {
		layer.sinks = pick(l.vector(named(n.sinks), c.NumHeads), l.part.span(c.NumHeads))
	}
	qkv, s := []string{named(n.q)}, shape{inputs: c.HiddenSize, outputs: []int{query + 2*kv},
		rows: [][]span{l.part.qkvRows(query, kv)}, bias: c.QKVBias, adapts: true}
	if n.k != "" {
		qkv, s.outputs = []string{named(n.q), named(n.k), named(n.v)}, []int{query, kv, kv}
		s.rows = [][]span{{l.part.span(query)}, {l.part.span(kv)}, {l.part.span(kv)}}
	}
	if c.Gate {
		s.outputs[0], s.rows[0] = 2*query, everySecond(c.NumHeads, c.HeadDim, 0)
		layer.attnGate = l.linear(shape{inputs: c.HiddenSize, outputs: []int{2 * query}, rows: [][]span{everySecond(c.NumHeads, c.HeadDim, 1)}, bias: c.QKVBias, adapts: true}, qkv[0])
	}
	layer.qkv = l.linear(s, qkv...)
	layer.out = l.rowParallel(shape{inputs: query, outputs: []int{c.HiddenSize}, bias: c.OutBias, adapts: true}, named(n.out))
}

// everySecond returns the rows of every second of 2n heads, beginning with the head first.
func everySecond(n, dim, first int) (rows []span) {
	for h := range n {
		rows = append(rows, span{(2*h + first) * dim, (2*h + first + 1) * dim})
	}
	return rows
}

// tensorName formats name with the numbers of a layer and an expert. It returns "" if name is "".
func tensorName(name string, numbers ...any) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(name, numbers...)
}

// qkNorm loads the part's weights of the norm of queries or keys. width is the number of elements of all heads.
func (l *loader) qkNorm(name string, width int) []float32 {
	switch l.config.QKNorm {
	case HeadNorm:
		return l.normWeights(name, l.config.HeadDim)
	case WidthNorm:
		return pick(l.normWeights(name, width), l.part.span(width))
	case RotatedNorm:
		return ones[:l.config.HeadDim]
	}
	return nil
}

// An mlpShape describes an MLP or an expert. experts is the number of experts in a tensor, and expert is the index of
// this one. For an MLP they are 1 and 0.
type mlpShape struct {
	experts, expert, inter int
	bias                   bool
	adapts                 bool // adapters can change the products
}

// mlp loads the part's share of an MLP or of an expert. gate, upProj and downProj are the names of tensors. If the MLP
// has a gate projection and gate is "", the tensor with the name upProj has both projections. In this tensor, the rows
// of the gate projection of an MLP or an expert come before the rows of its up projection, or alternate with them if
// l.names.paired is true.
func (l *loader) mlp(m mlpShape, gate, upProj, downProj string) (loaded mlp) {
	c, inner := l.config, l.part.span(m.inter)
	rows := func(start int) span { return span{start + inner.start, start + inner.end} }
	outs, first := m.experts*m.inter, m.expert*m.inter
	tensors, s := []string{upProj}, shape{inputs: c.HiddenSize, outputs: []int{outs}, rows: [][]span{{rows(first)}}, bias: m.bias, adapts: m.adapts}
	switch {
	case c.Gated() && gate != "":
		tensors, s.outputs, s.rows = []string{gate, upProj}, []int{outs, outs}, [][]span{{rows(first)}, {rows(first)}}
	case c.Gated():
		s.outputs, s.rows = []int{2 * outs}, [][]span{{rows(2 * first), rows(2*first + m.inter)}}
		if l.names.paired {
			s.paired = m.inter
		}
	}
	loaded.upProj = l.linear(s, tensors...)
	s = shape{inputs: m.inter, outputs: []int{m.experts * c.HiddenSize}, bias: m.bias, adapts: m.adapts}
	if m.experts > 1 {
		s.rows = [][]span{{{m.expert * c.HiddenSize, (m.expert + 1) * c.HiddenSize}}}
	}
	loaded.downProj = l.rowParallel(s, downProj)
	return loaded
}

// A table is a matrix whose rows are read one by one, such as the embeddings. It has the type that it has in the
// file.
type table struct {
	memory *matrix.Memory
	tensor *weights.Tensor
}

func (l *loader) table(name string, rows int) *table {
	return l.tableOf(name, rows, l.config.HiddenSize)
}

func (l *loader) tableOf(name string, rows, cols int) *table {
	t := l.tensor(name + ".weight")
	switch {
	case l.err != nil:
		return nil
	case t.Rows < rows || t.Cols != cols:
		l.expect(t, rows, cols)
		return nil
	case t.Combined():
		l.fail("the tensor %q is quantized; embeddings are read in F32, F16 and BF16", t.Name)
		return nil
	case l.shapes:
		return nil
	case l.device != nil:
		return &table{tensor: t}
	}
	memory, err := matrix.Allocate(t.Bytes())
	if err != nil {
		l.stop(err)
		return nil
	}
	return &table{memory, t.CopyTo(memory.Bytes())}
}

func (t *table) bytes() int {
	if t == nil || t.memory == nil {
		return 0
	}
	return len(t.memory.Bytes())
}

func (t *table) close() error {
	if t == nil || t.memory == nil {
		return nil
	}
	return t.memory.Close()
}
