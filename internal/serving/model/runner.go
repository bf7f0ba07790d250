package model

import (
	"errors"
	"fmt"
	"slices"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model/matrix"
	"llmmemory/internal/serving/parallel"
)

// A Runner computes batches with a model. It keeps the keys and values of the sequences in a store. One goroutine may
// use a Runner at a time. It keeps its memory from batch to batch. It allocates more only for a larger batch or for a
// larger position than before.
type Runner struct {
	model   *Model
	local   Config // the shape of the part
	group   Group  // nil if the part is the whole model
	store   *kvstore.Store
	places  []Place // the place of each layer
	groups  int
	pool    *parallel.Pool
	attend  *attention.Runner
	scan    scan
	scratch []*matrix.Scratch

	x, normed, qkv, attended, sums, gateUp, act, logits, part []float32
	squares                                                   []float32 // of queries and keys of each row
	gates                                                     []float32 // of the outputs of attention

	maxMLPRows int // limit of the rows of gateUp and act
	upWidth    int // widths of gateUp and act, the largest of all layers
	actWidth   int
	inWidth    int // widths of the projections of a layer with a state, or 0
	innerWidth int
	routing    routing
	latent     latentMemory
	mixed      mixedMemory

	angles map[*Rope]*rotary

	product    productJob
	adaptation adaptation
	largest    largest
	packing    packJob
	rows       rowJob
	tokens     kvstore.Tokens
	batch      attention.Batch
}

// A rotary is a rotary embedding, its tables, and the kvstore.Rotation with which keys are rotated.
type rotary struct {
	tables
	rope     *Rope
	rotation kvstore.Rotation
}

// maxMLPRows is the largest number of rows that an MLP computes at a time. It limits the memory for the widest
// activations of a model. With 256 rows, a prompt of 512 tokens took 1 to 2 % longer.
const maxMLPRows = 512

// KVShape returns the shape of the keys and values of one layer of m.
func (m *Model) KVShape(blockSize int, dtype attention.DType) attention.Shape {
	return m.KVShapeOf(m.part, blockSize, dtype)
}

// KVShapeOf returns the shape of the keys and values of one layer in part p of the model.
func (c *Config) KVShapeOf(p Part, blockSize int, dtype attention.DType) attention.Shape {
	if a := c.Latent; a != nil {
		return attention.Shape{BlockSize: blockSize, NumKVHeads: 1, HeadSize: a.keySize(), Latent: a.KVRank, DType: dtype,
			Layout: attention.LayoutFlash}
	}
	return attention.Shape{BlockSize: blockSize, NumKVHeads: c.local(p).NumKVHeads, HeadSize: c.HeadDim, DType: dtype}
}

// NewRunner makes a Runner. The store must have the shape of m's keys and values. If m is a part of a model, group is
// required, and its other workers must compute the same batches at the same time. places has the place of each layer.
// If there are no places, all layers have the same block table, and layer i uses layer i of the store.
func NewRunner(m *Model, store *kvstore.Store, pool *parallel.Pool, group Group, places ...Place) (*Runner, error) {
	s, local := store.Config(), m.local(m.part)
	if places == nil && s.Layers == m.NumLayers {
		for i := range m.NumLayers {
			places = append(places, Place{Layer: i})
		}
	}
	groups := 0
	for _, p := range places {
		if groups = max(groups, p.Group+1); p.Group < 0 || uint(p.Layer) >= uint(s.Layers) {
			return nil, badBatch("a layer in group %d, and layer %d of a store of %d", p.Group, p.Layer, s.Layers)
		}
	}
	want := m.KVShapeOf(m.part, s.BlockSize, s.DType)
	if m.Mixed != nil {
		want = s.Shape // viewLayers checks those of all layers
	}
	if len(places) != m.NumLayers || s.NumKVHeads != want.NumKVHeads || s.HeadSize != want.HeadSize || s.Latent != want.Latent {
		return nil, badBatch("a store of %d layers of %d heads of %d for a model of %d layers of %d heads of %d", s.Layers,
			s.NumKVHeads, s.HeadSize, m.NumLayers, want.NumKVHeads, want.HeadSize)
	}
	if n := m.StateBytes(); n > s.Shape.BlockBytes() {
		return nil, badBatch("a store with blocks of %d bytes in a layer for states of %d", s.Shape.BlockBytes(), n)
	}
	if m.part.size() == 1 {
		group = nil
	} else if group == nil {
		return nil, badBatch("a part of a model without the group of the others")
	}
	r := &Runner{model: m, local: local, group: group, store: store, pool: pool, attend: attention.NewRunner(pool),
		maxMLPRows: maxMLPRows, places: places, groups: groups}
	for range pool.Size() {
		r.scratch = append(r.scratch, matrix.NewScratch())
	}
	r.product.scratch, r.product.config = r.scratch, &m.Config
	r.adaptation.init(r)
	r.scan.init(r)
	for i := range m.layers {
		widest := func(m *mlp) {
			if m.upProj.parts != nil {
				r.upWidth, r.actWidth = max(r.upWidth, m.upProj.out), max(r.actWidth, m.downProj.parts[0].In)
			}
		}
		l := &m.layers[i]
		if x := l.recurrent; x != nil {
			r.inWidth, r.innerWidth = x.input.out, x.output.parts[0].In
		}
		widest(&l.mlp)
		if l.experts != nil {
			widest(&l.experts.all[0])
		}
	}
	r.Limit(m.MaxModelLen)
	return r, r.viewLayers()
}

// Limit sets the maximum sequence length, which selects LongRope's factors. The default is the model's.
func (r *Runner) Limit(maxModelLen int) {
	r.angles = map[*Rope]*rotary{}
	for i := range r.model.layers {
		if rope := r.model.RopeOf(i); rope != nil && r.angles[rope] == nil {
			chosen := rope.forLength(maxModelLen)
			r.angles[rope] = &rotary{rope: chosen, rotation: kvstore.Rotation{Size: rope.Rotated(r.model.HeadDim),
				Interleaved: rope.Interleaved}}
		}
	}
}

// Forward computes all layers for the tokens of a batch, and writes their keys and values. ComputeLogits may follow.
// An error wraps ErrBatch or an error of attention, kvstore or the Group. Forward may then have written some keys and
// values.
func (r *Runner) Forward(b *Batch) error {
	if err := b.Check(&r.model.Config, r.groups); err != nil {
		return err
	}
	m, n := r.model, len(b.Tokens)
	qkv, _, out := r.widths()
	r.x, r.normed = grow(r.x, n*m.HiddenSize), grow(r.normed, n*m.HiddenSize)
	r.qkv, r.attended = grow(r.qkv, n*max(qkv, r.inWidth)), grow(r.attended, n*max(out, r.innerWidth))
	r.sums = grow(r.sums, n*m.HiddenSize)
	r.gateUp, r.act = grow(r.gateUp, r.mlpRows(n)*r.upWidth), grow(r.act, r.mlpRows(n)*r.actWidth)
	if err := errors.Join(r.adaptation.begin(b), r.scan.begin(b)); err != nil {
		return err
	}
	r.prepare(b)
	r.embed(b)
	r.embedLayers(b)
	for i := range m.layers {
		if err := r.layer(i, b); err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
	}
	return nil
}

func (r *Runner) prepare(b *Batch) {
	m := r.model
	width, query, out := r.widths()
	kv := r.local.NumKVHeads * m.HeadDim
	r.tokens = kvstore.Tokens{
		Key:   attention.Float32s(r.qkv[query:], width),
		Value: attention.Float32s(r.qkv[query+kv:], width),
	}
	for _, a := range r.angles {
		a.extend(a.rope, int(slices.Max(b.Positions))+1, m.MaxModelLen, m.HeadDim)
		a.rotation.Positions, a.rotation.Cos, a.rotation.Sin = b.Positions, a.cos, a.sin
	}
	r.batch = attention.Batch{
		NumHeads: r.local.NumHeads, Query: attention.Float32s(r.qkv, width), Out: attention.Float32s(r.attended, out),
		QueryStart: b.QueryStart, SeqLens: b.SeqLens, Scale: m.AttentionFactor(), SoftCap: float32(m.AttentionCap),
	}
	if m.Latent != nil {
		r.prepareLatent(len(b.Tokens))
	}
}

func (r *Runner) embed(b *Batch) {
	m := r.model
	for i, t := range b.Tokens {
		row := r.x[i*m.HiddenSize:][:m.HiddenSize]
		if m.embed != nil {
			m.embed.tensor.Row(int(t), row)
		} else {
			m.head.parts[0].Row(int(t), row)
		}
		if m.EmbeddingScale != 0 {
			for k := range row {
				row[k] *= float32(m.EmbeddingScale)
			}
		}
		if m.positions != nil {
			place := r.normed[:m.HiddenSize]
			m.positions.tensor.Row(int(b.Positions[i])+m.PositionOffset, place)
			for k, v := range place {
				row[k] += v
			}
		}
	}
}

// normalized returns the residual stream, normalized if norm has weights.
func (r *Runner) normalized(norm *norm, n int) []float32 {
	if norm.weight == nil {
		return r.x
	}
	r.each(n, rowJob{op: opNorm, norm: norm})
	return r.normed
}

func (r *Runner) firstHalf(m *mlp, x []float32, rows int) {
	r.multiply(&m.upProj, r.gateUp, x, rows)
	r.each(rows, rowJob{op: opActivate, width: m.upProj.out})
}

// sumSquares sets r.squares to two sums of squares for each row, over all heads. One is of the row's queries, the other
// of its keys. The elements of the whole model are summed in quarters, and each worker of a group sums its quarters.
// The result therefore has the same bits with any number of workers.
func (r *Runner) sumSquares(n int) error {
	r.squares = grow(r.squares, 2*n)
	r.each(n, rowJob{op: opSquares})
	if r.group == nil {
		return nil
	}
	return r.group.AllReduce(r.model.part.Rank, r.squares)
}

// mlpRows returns how many of the remaining n rows the MLP computes next. It divides the rows into pieces of about
// equal size.
func (r *Runner) mlpRows(n int) int {
	pieces := (n + r.maxMLPRows - 1) / r.maxMLPRows
	return (n + pieces - 1) / pieces
}

// Largest returns the token with the largest logit for each row of the last ComputeLogits; among equal logits, the
// first token. The token is -1 if the row has a NaN or +Inf, or only -Inf. ComputeLogits compares logits while they
// are in a core's cache, so Largest is faster than comparing them later. For a part of a model, it returns nil.
func (r *Runner) Largest() []int32 { return r.largest.tokens }

// ComputeLogits returns the logits of the tokens b.Logits[start:end] of the last batch of Forward, one row of VocabSize
// after the other. They are valid until the next call. In a group, it returns the logits only in the worker of rank
// 0, and nil in the others.
func (r *Runner) ComputeLogits(b *Batch, start, end int) ([]float32, error) {
	m := r.model
	hidden := m.HiddenSize
	for i, t := range b.Logits[start:end] {
		m.normalize(r.sums[i*hidden:][:hidden], r.x[int(t)*hidden:][:hidden], &m.norm)
	}
	n := end - start
	if r.group == nil {
		r.logits = grow(r.logits, n*m.VocabSize)
		r.largest.reset(0, n)
		r.product.largest = &r.largest
		r.multiply(&m.head, r.logits, r.sums, n)
		r.product.largest = nil
		r.largest.merge()
		return r.logits, nil
	}
	r.part = grow(r.part, n*m.head.out)
	part, rank := r.part, m.part.Rank
	vocab := m.vocab[rank]
	width := vocab.End - vocab.Start
	if m.head.out == width {
		r.multiply(&m.head, part, r.sums, n)
	} else {
		r.multiplyPanels(&m.head, part, r.sums, n, vocab.Start/matrix.Panel, (vocab.End+matrix.Panel-1)/matrix.Panel)
		for i := range n {
			copy(part[i*width:][:width], part[i*m.head.out+vocab.Start:])
		}
		part = part[:n*width]
	}
	if rank == 0 {
		r.logits = grow(r.logits, n*m.VocabSize)
	}
	err := r.group.Gather(rank, r.logits, m.VocabSize, part, m.vocab)
	if err == nil && rank == 0 && m.ChangesLogits() {
		r.each(n, rowJob{op: opLogits})
	}
	return r.logits, err
}

// ComputeStates returns the hidden states of the tokens b.States of the last batch of Forward, after the last norm: one
// row of HiddenSize after the other. They are valid until the next call of ComputeLogits, ComputeStates or Forward. In
// a group, it returns them only in the worker of rank 0, and nil in the others.
func (r *Runner) ComputeStates(b *Batch) ([]float32, error) {
	m := r.model
	if len(b.States) == 0 || m.part.Rank > 0 {
		return nil, nil
	}
	hidden := m.HiddenSize
	states := r.sums[:len(b.States)*hidden]
	for i, t := range b.States {
		m.normalize(states[i*hidden:][:hidden], r.x[int(t)*hidden:][:hidden], &m.norm)
	}
	return states, nil
}

// grow returns a slice of n elements, whose contents are undefined. It uses the memory of s if that is large enough.
func grow[E any](s []E, n int) []E {
	if cap(s) >= n {
		return s[:n]
	}
	return make([]E, n)
}
