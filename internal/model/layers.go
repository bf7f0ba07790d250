package model

import (
	"fmt"

	"llmmemory/internal/model/matrix"
	"llmmemory/internal/model/weights"
)

// load fills m in; what is there when it fails can be closed.
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
	n, rank := l.part.size(), l.part.Rank
	m.vocab = span{c.VocabSize * rank / n, c.VocabSize * (rank + 1) / n}
	rows := m.vocab
	if c.TieEmbeddings { // it is whole in each part, which multiplies by some of its panels
		panels := (c.VocabSize + matrix.Panel - 1) / matrix.Panel
		m.vocab = span{panels * rank / n * matrix.Panel, min(panels*(rank+1)/n*matrix.Panel, c.VocabSize)}
		rows = span{0, c.VocabSize}
	}
	if rows.len() < 1 {
		return fmt.Errorf("%w: a vocabulary of %d cannot be shared out among %d workers", ErrModel, c.VocabSize, n)
	}
	kind, block := l.packedType(t)
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
	at := func(name string) string { return fmt.Sprintf(name, i) }
	if layer.attnNorm, err = l.norm(at(n.attnNorm)); err != nil {
		return layer, err
	}
	if layer.mlpNorm, err = l.norm(at(n.mlpNorm)); err != nil {
		return layer, err
	}
	if c.QKNorm {
		if layer.qNorm, err = l.vector(at(n.qNorm)+".weight", c.HeadDim); err != nil {
			return layer, err
		}
		if layer.kNorm, err = l.vector(at(n.kNorm)+".weight", c.HeadDim); err != nil {
			return layer, err
		}
	}
	query, kv := c.NumHeads*c.HeadDim, c.NumKVHeads*c.HeadDim
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
	inner := []span{l.part.span(c.IntermediateSize)}
	up, s := []string{at(n.up)}, shape{in: c.HiddenSize, outs: []int{c.IntermediateSize}, rows: [][]span{inner},
		bias: c.MLPBias}
	if c.gated() {
		up, s.outs, s.rows = []string{at(n.gate), at(n.up)}, []int{c.IntermediateSize, c.IntermediateSize},
			[][]span{inner, inner}
	}
	if layer.up, err = l.linear(s, up...); err != nil {
		return layer, err
	}
	layer.down, err = l.second(shape{in: c.IntermediateSize, outs: []int{c.HiddenSize}, bias: c.MLPBias}, at(n.down))
	return layer, err
}

// A table is rows that are looked up, kept as the file has them.
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
