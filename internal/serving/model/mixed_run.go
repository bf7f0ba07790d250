package model

import (
	"math"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model/matrix"
)

// mixedMemory is the memory of a Runner for layers with different heads.
type mixedMemory struct {
	views    []attention.Cache // of each layer, the blocks of its keys and values
	values   []float32         // [rows][KV heads × size of a head], normalized
	vectors  []float32         // [rows][layers][PerLayerDim]
	rows     []float32         // [rows][layers][PerLayerDim]: the part of vectors that depends on the token only
	gates    []float32         // [rows][PerLayerDim], as the next two
	gated    []float32         // the product of gelu of gates and a layer's vector
	squashed []float32         // the factors of gates in this product
}

// viewLayers sets the blocks of each layer.
func (r *Runner) viewLayers() error {
	m, s := r.model, r.store.Config()
	if m.Mixed == nil {
		return nil
	}
	for i := range m.layers {
		if source := m.KVSource(i); source != i {
			r.places[i] = r.places[source]
		}
		blockSize := s.BlockSize
		if n := r.places[i].BlockSize; n > 0 {
			blockSize = n
		}
		view, err := r.store.View(r.places[i].Layer, m.LayerShape(i, m.part, blockSize, s.DType))
		if err != nil {
			return err
		}
		r.mixed.views = append(r.mixed.views, view)
	}
	return nil
}

// mixedAttention is attention for layers with different heads.
func (r *Runner) mixedAttention(i int, b *Batch) error {
	m, n := r.model, len(b.Tokens)
	l, view := &m.layers[i], &r.mixed.views[i]
	dim, kvHeads := m.headsOf(i)
	width, query, kv := l.qkv.out, m.NumHeads*dim, kvHeads*dim
	r.multiply(&l.qkv, r.qkv, r.normalized(&l.attnNorm, n), n)
	r.mixed.values = grow(r.mixed.values, n*kv)
	r.each(n, rowJob{op: opMixedHeads, layer: l, number: i, positions: b.Positions, angles: r.angles[m.RopeOf(i)]})
	place := r.places[i]
	blocks := b.blocks(place.Group)
	if width > query {
		tokens := &r.tokens
		*tokens = kvstore.Tokens{Key: attention.Float32s(r.qkv[query:], width), Value: attention.Float32s(r.mixed.values, kv), Slots: blocks.Slots}
		if err := r.store.WriteView(view, tokens); err != nil {
			return err
		}
	}
	r.batch.Query, r.batch.Out = attention.Float32s(r.qkv, width), attention.Float32s(r.attended, query)
	r.batch.BlockTables, r.batch.TableStride = blocks.BlockTables, blocks.TableStride
	r.batch.CommonPrefix, r.batch.SlidingWindow = blocks.CommonPrefix, m.Window(i)
	if err := r.attend.Forward(view, &r.batch); err != nil {
		return err
	}
	return r.addProduct(&l.out, &l.attnPost, r.x, r.attended, n)
}

// embedLayers makes the vectors of all layers for the tokens of a batch, from the embeddings in r.x.
func (r *Runner) embedLayers(b *Batch) {
	m := r.model
	if m.Mixed == nil || m.Mixed.PerLayerDim == 0 {
		return
	}
	n, x := len(b.Tokens), &r.mixed
	x.vectors, x.rows = grow(x.vectors, n*m.perLayer.projection.out), grow(x.rows, n*m.perLayer.projection.out)
	r.adaptation.choose(0, n)
	r.multiply(&m.perLayer.projection, x.vectors, r.x, n)
	r.each(n, rowJob{op: opVectors, tokens: b.Tokens})
}

// finishMixed adds what a layer computes from its vector, and multiplies the result by the layer's scale.
func (r *Runner) finishMixed(i, n int) error {
	m, x := r.model, &r.mixed
	l := m.layers[i].mixed
	if d := m.Mixed.PerLayerDim; d > 0 {
		x.gates, x.gated, x.squashed = grow(x.gates, n*d), grow(x.gated, n*d), grow(x.squashed, n*d)
		r.multiply(&l.gate, x.gates, r.x, n)
		r.each(n, rowJob{op: opVectorGate, number: i})
		if err := r.addProduct(&l.projection, &l.norm, r.x, x.gated, n); err != nil {
			return err
		}
	}
	if l.scale != 1 {
		r.each(n, rowJob{op: opScale, layer: &m.layers[i]})
	}
	return nil
}

// mixedRow normalizes and rotates the queries and the keys of a row, and sets its values.
func (r *Runner) mixedRow(j *rowJob, row int) {
	m, l := r.model, j.layer
	dim, kvHeads := m.headsOf(j.number)
	query, kv := m.NumHeads*dim, kvHeads*dim
	qkv := r.qkv[row*l.qkv.out:][:l.qkv.out]
	normHeads(qkv[:query], dim, l.qNorm, m.NormEps)
	rotateHeads(qkv[:query], dim, j.positions[row], j.angles.rope, &j.angles.tables)
	if len(qkv) == query {
		return
	}
	key, values := qkv[query:][:kv], r.mixed.values[row*kv:][:kv]
	copy(values, qkv[len(qkv)-kv:]) // the keys, if there are no values
	normHeads(values, dim, ones[:dim], m.NormEps)
	normHeads(key, dim, l.kNorm, m.NormEps)
	rotateHeads(key, dim, j.positions[row], j.angles.rope, &j.angles.tables)
}

// vectorsRow makes the vectors of the layers for a token: the projection of its embedding, normalized, and its own
// vectors, both with the same weight.
func (r *Runner) vectorsRow(token, row int) {
	m := r.model
	d, width := m.Mixed.PerLayerDim, m.perLayer.projection.out
	all := r.mixed.vectors[row*width:][:width]
	scale := float32(1 / math.Sqrt(float64(m.HiddenSize)))
	for i := range all {
		all[i] *= scale
	}
	normHeads(all, d, m.perLayer.norm, m.NormEps)
	own := r.mixed.rows[row*width:][:width]
	m.perLayer.embed.tensor.Row(token, own)
	root, half := float32(math.Sqrt(float64(d))), float32(math.Sqrt(0.5))
	for i, v := range own {
		all[i] = (all[i] + v*root) * half
	}
}

// vectorGateRow multiplies the token's vector of a layer by gelu of its gates.
func (r *Runner) vectorGateRow(layer, row int) {
	m := r.model
	d, width := m.Mixed.PerLayerDim, m.perLayer.projection.out
	gates, factors := r.mixed.gates[row*d:][:d], r.mixed.squashed[row*d:][:d]
	copy(factors, r.mixed.vectors[row*width+layer*d:])
	prepareGate(GatedGELU, gates, factors)
	matrix.SiLUMul(r.mixed.gated[row*d:][:d], gates, factors)
}
