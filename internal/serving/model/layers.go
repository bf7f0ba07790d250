package model

import (
	"fmt"

	"llmmemory/internal/serving/model/matrix"
	"llmmemory/internal/serving/model/weights"
)

// load fills in m. After an error, m can be closed.
func (l *loader) load(m *Model) (err error) {
	c := l.config
	if m.norm, err = l.norm(l.names.norm); err != nil {
		return err
	}
	if c.Rope == nil {
		if m.positions, err = l.table(l.names.positions, c.MaxModelLen+c.PositionOffset); err != nil {
			return err
		}
	}
	if !c.TieEmbeddings {
		if m.embed, err = l.table(l.names.embed, c.VocabSize); err != nil {
			return err
		}
	}
	if err := l.head(m); err != nil {
		return err
	}
	for i := range c.NumLayers {
		layer, err := l.layer(i)
		m.layers = append(m.layers, layer)
		if err != nil {
			return err
		}
	}
	return nil
}

// head loads the output matrix, which may be the embeddings.
func (l *loader) head(m *Model) (err error) {
	c := l.config
	name := l.names.head
	if c.TieEmbeddings {
		name = l.names.embed
	}
	t, err := l.tensor(name + ".weight")
	if err != nil {
		return err
	}
	if t.Rows != c.VocabSize || t.Cols != c.HiddenSize {
		return fmt.Errorf("%w: the tensor %q is %d × %d, the configuration says %d × %d", ErrModel, t.Name, t.Rows, t.Cols,
			c.VocabSize, c.HiddenSize)
	}
	n := l.part.size()
	for rank := range n {
		columns := Columns{c.VocabSize * rank / n, c.VocabSize * (rank + 1) / n}
		if c.TieEmbeddings { // each part has all embeddings and multiplies by some of their panels
			panels := (c.VocabSize + matrix.Panel - 1) / matrix.Panel
			columns = Columns{panels * rank / n * matrix.Panel, min(panels*(rank+1)/n*matrix.Panel, c.VocabSize)}
		}
		m.vocab = append(m.vocab, columns)
	}
	rows := span{m.vocab[l.part.Rank].From, m.vocab[l.part.Rank].To}
	if c.TieEmbeddings {
		rows = span{0, c.VocabSize}
	}
	if rows.len() < 1 {
		return fmt.Errorf("%w: a vocabulary of %d cannot be shared out among %d workers", ErrModel, c.VocabSize, n)
	}
	kind, block := l.packedType(t, t.Cols)
	source := &stack{cuts: []*cut{{source: t, rows: []span{rows}, width: t.Cols, cols: span{0, t.Cols}, block: block}}}
	packed, err := l.pack(kind, rows.len(), t.Cols, block, source)
	if err != nil {
		return fmt.Errorf("%s: %w", t.Name, err)
	}
	m.head = linear{parts: []*matrix.Matrix{packed}, out: rows.len()}
	t.Release()
	return nil
}

func (l *loader) layer(i int) (layer layer, err error) {
	c, n := l.config, l.names
	at := func(name string) string { return tensorName(name, i) }
	for _, norm := range []struct {
		to    *norm
		name  string
		there bool
	}{
		{&layer.attnNorm, n.attnNorm, c.NormPlace != NormAfter}, {&layer.mlpNorm, n.mlpNorm, c.NormPlace != NormAfter},
		{&layer.attnPost, n.attnPost, c.NormPlace != NormBefore}, {&layer.mlpPost, n.mlpPost, c.NormPlace != NormBefore},
	} {
		if norm.there {
			if *norm.to, err = l.norm(at(norm.name)); err != nil {
				return layer, err
			}
		}
	}
	query, kv := c.NumHeads*c.HeadDim, c.NumKVHeads*c.HeadDim
	if layer.qNorm, err = l.qkNorm(at(n.qNorm), query); err != nil {
		return layer, err
	}
	if layer.kNorm, err = l.qkNorm(at(n.kNorm), kv); err != nil {
		return layer, err
	}
	if c.Sinks {
		if layer.sinks, err = l.vector(at(n.sinks), c.NumHeads); err != nil {
			return layer, err
		}
		layer.sinks = pick(layer.sinks, []span{l.part.span(c.NumHeads)})
	}
	qkv, s := []string{at(n.q)}, shape{in: c.HiddenSize, outs: []int{query + 2*kv},
		rows: [][]span{l.part.fused(query, kv)}, bias: c.QKVBias}
	if n.k != "" {
		qkv, s.outs = []string{at(n.q), at(n.k), at(n.v)}, []int{query, kv, kv}
		s.rows = [][]span{{l.part.span(query)}, {l.part.span(kv)}, {l.part.span(kv)}}
	}
	if layer.qkv, err = l.linear(s, qkv...); err != nil {
		return layer, err
	}
	if layer.out, err = l.second(shape{in: query, outs: []int{c.HiddenSize}, bias: c.OutBias}, at(n.out)); err != nil {
		return layer, err
	}
	if c.mixture(i) {
		return layer, l.mixture(&layer, i)
	}
	layer.mlp, err = l.mlp(mlpShape{1, 0, c.IntermediateSize, c.MLPBias}, at(n.gate), at(n.up), at(n.down))
	return layer, err
}

// tensor of a layer, or of one of its experts. "" stays "".
func tensorName(name string, numbers ...any) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(name, numbers...)
}

// qkNorm loads the weights of the norm of queries or keys. width is the number of elements of all heads.
func (l *loader) qkNorm(name string, width int) ([]float32, error) {
	switch l.config.QKNorm {
	case HeadNorm:
		return l.normWeights(name, l.config.HeadDim)
	case WidthNorm:
		v, err := l.normWeights(name, width)
		if err != nil {
			return nil, err
		}
		return pick(v, []span{l.part.span(width)}), nil
	}
	return nil, nil
}

// An mlpShape is the size of an MLP, and which expert it is of those stacked in a tensor.
type mlpShape struct {
	experts, expert, inter int
	bias                   bool
}

// mlp loads an MLP or an expert. If gate is empty, the tensor up has the rows of the gate first.
func (l *loader) mlp(m mlpShape, gate, up, down string) (both mlp, err error) {
	c, inner := l.config, l.part.span(m.inter)
	rows := func(from int) span { return span{from + inner.from, from + inner.to} }
	outs, first := m.experts*m.inter, m.expert*m.inter
	tensors, s := []string{up}, shape{in: c.HiddenSize, outs: []int{outs}, rows: [][]span{{rows(first)}}, bias: m.bias}
	switch {
	case c.gated() && gate != "":
		tensors, s.outs, s.rows = []string{gate, up}, []int{outs, outs}, [][]span{{rows(first)}, {rows(first)}}
	case c.gated():
		s.outs, s.rows = []int{2 * outs}, [][]span{{rows(2 * first), rows(2*first + m.inter)}}
		if l.names.paired {
			s.paired = m.inter
		}
	}
	if both.up, err = l.linear(s, tensors...); err != nil {
		return both, err
	}
	s = shape{in: m.inter, outs: []int{m.experts * c.HiddenSize}, bias: m.bias}
	if m.experts > 1 {
		s.rows = [][]span{{{m.expert * c.HiddenSize, (m.expert + 1) * c.HiddenSize}}}
	}
	both.down, err = l.second(s, down)
	return both, err
}

// A table is a matrix whose rows are looked up. It keeps the format of the file.
type table struct {
	memory *matrix.Memory
	tensor *weights.Tensor
}

func (l *loader) table(name string, rows int) (*table, error) {
	t, err := l.tensor(name + ".weight")
	if err != nil {
		return nil, err
	}
	if t.Rows < rows || t.Cols != l.config.HiddenSize {
		return nil, fmt.Errorf("%w: the tensor %q is %d × %d, the configuration says %d × %d", ErrModel, t.Name, t.Rows,
			t.Cols, rows, l.config.HiddenSize)
	}
	if t.Combined() {
		return nil, fmt.Errorf("%w: the tensor %q is quantized; embeddings are read in F32, F16 and BF16", ErrModel, t.Name)
	}
	if l.shapes {
		return nil, nil
	}
	memory, err := matrix.Allocate(t.Bytes())
	if err != nil {
		return nil, err
	}
	return &table{memory, t.CopyTo(memory.Bytes())}, nil
}

func (t *table) bytes() int {
	if t == nil {
		return 0
	}
	return len(t.memory.Bytes())
}

func (t *table) close() error {
	if t == nil {
		return nil
	}
	return t.memory.Close()
}
