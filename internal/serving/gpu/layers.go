package gpu

import (
	"cmp"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/model"
)

// embedTokens sets x to the embeddings of n tokens.
func (r *Runner) embedTokens(n int) {
	r.pending = false
	r.launch(kernels.Embedding{Type: r.kind, Out: r.x, Table: r.embed, Tokens: r.inputs.tokens, PositionTable: r.positions, Positions: r.inputs.positions,
		Rows: n, N: r.HiddenSize, Scale: float32(cmp.Or(r.EmbeddingScale, 1))})
}

// layer computes a layer of n tokens.
func (r *Runner) layer(i, n int) {
	l := &r.layers[i]
	r.multiply(&l.qkv, r.qkv, r.normalized(l.attnNorm, n), n)
	r.attention(i, n)
	r.multiply(&l.out, r.sums, r.attended, n)
	r.addSums(l.attnPost, n)
	r.activated(&l.upProj, r.normalized(l.mlpNorm, n), n)
	r.multiply(&l.downProj, r.sums, r.act, n)
	r.addSums(l.mlpPost, n)
}

// normalized adds pending sums to the residual stream, normalizes the residual stream, and returns the address of the
// result. If the norm has no weights, nothing is normalized, and the result is the address of the residual stream.
func (r *Runner) normalized(n norm, rows int) cuda.Pointer {
	if n.weight == 0 {
		r.addPending(rows)
		return r.x
	}
	if r.pending {
		r.pending = false
		r.normalize(n, r.normed, r.sums, r.x, rows)
	} else {
		r.normalize(n, r.normed, r.x, 0, rows)
	}
	return r.normed
}

// normalize writes the normalized rows of x to out. If residual is not 0, normalize first adds x to residual, and
// then writes the normalized rows of residual to out.
func (r *Runner) normalize(n norm, out, x, residual cuda.Pointer, rows int) {
	if r.Norm == model.LayerNorm {
		r.launch(kernels.LayerNorm{Type: r.kind, Out: out, In: x, Residual: residual, Weight: n.weight, Bias: n.bias, Rows: rows, N: r.HiddenSize,
			Epsilon: float32(r.NormEps)})
		return
	}
	r.launch(kernels.RMSNorm{Type: r.kind, Out: out, In: x, Residual: residual, Weight: n.weight, Tokens: rows, N: r.HiddenSize, Epsilon: float32(r.NormEps)})
}

// addSums adds r.sums, the outputs of attention or of the MLP, to the residual stream, multiplied by r.residual. The
// parameter post is a norm. If it has weights, addSums first normalizes r.sums with it. If r.residual is 1, addSums
// leaves the addition to the next call of normalized or addPending.
func (r *Runner) addSums(post norm, rows int) {
	if post.weight != 0 {
		r.normalize(post, r.sums, r.sums, 0, rows)
	}
	if r.pending = true; r.residual != 1 {
		r.addPending(rows)
	}
}

// addPending adds pending sums to the residual stream.
func (r *Runner) addPending(rows int) {
	if r.pending {
		r.pending = false
		r.launch(kernels.Add{Type: r.kind, Out: r.x, In: r.sums, Other: r.x, Stride: r.HiddenSize, Rows: rows, N: r.HiddenSize, Scale: r.residual})
	}
}

// activated sets r.act to the activations of an MLP: the function of its first product, which the product computes if its
// weights are gated.
func (r *Runner) activated(l *linear, x cuda.Pointer, rows int) {
	function := functions[r.Activation]
	if l.parts[0].Gated {
		r.multiplyTo(l, kernels.Product{Out: r.act, In: x, Rows: rows, Function: function})
		return
	}
	r.multiply(l, r.upOut, x, rows)
	n := l.out
	if r.Gated() {
		n /= 2
	}
	r.launch(kernels.Activation{Type: r.kind, Function: function, Out: r.act, In: r.upOut, Rows: rows, N: n})
}

// multiply computes a product with its bias.
func (r *Runner) multiply(l *linear, out, x cuda.Pointer, rows int) {
	r.multiplyTo(l, kernels.Product{Out: out, OutStride: l.out, In: x, Rows: rows})
	if l.bias != 0 {
		r.launch(kernels.Add{Type: r.kind, Out: out, In: out, Other: l.bias, Rows: rows, N: l.out, Scale: 1})
	}
}

// multiplyTo computes a product without its bias. The parameter product has its operands, except weights and scratch.
func (r *Runner) multiplyTo(l *linear, product kernels.Product) {
	product.Parts, product.Arrived, product.Unpacked = r.scratch.parts, r.scratch.arrived, r.scratch.unpacked
	out := product.Out
	for _, p := range l.parts {
		plan, err := p.Plan(r.context.Device(), product.Rows)
		r.try(func() error { return err })
		product.Weights, product.Plan, product.Out = p.Weights, plan, out+cuda.Pointer(p.first*r.kind.Bytes())
		r.launch(product)
	}
}

// attention normalizes and rotates queries and keys, writes keys and values to their blocks, and computes
// attention.
func (r *Runner) attention(i, n int) {
	l, bytes, batch := &r.layers[i], r.kind.Bytes(), &r.inputs
	key := r.qkv + cuda.Pointer(r.query*bytes)
	value := key + cuda.Pointer(r.kv*bytes)
	place := r.config.Places[i]
	group, plan := &batch.groups[place.Group], batch.plans[r.Window(i)]
	keys, values := r.cache(place.Layer)
	write := kernels.QKNormRopeAndCache{ReshapeAndCache: kernels.ReshapeAndCache{Type: r.kind, Cache: r.cacheType, KeyCache: keys, ValueCache: values, Key: key, Value: value,
		Slots: group.slots, Tokens: n, KeyHeads: r.NumKVHeads, HeadSize: r.size, BlockSize: r.config.Store.BlockSize, KeyStride: r.width, ValueStride: r.width},
		Query: r.qkv, QueryStride: r.width, Heads: r.NumHeads, Epsilon: r.headEpsilon(), Positions: batch.positions}
	switch r.QKNorm {
	case model.HeadNorm:
		write.QueryNorm, write.KeyNorm = l.qNorm, l.kNorm
	case model.WidthNorm:
		r.normalizeWidth(r.qkv, l.qNorm, r.query, n)
		r.normalizeWidth(key, l.kNorm, r.kv, n)
	}
	if rope := r.RopeOf(i); rope != nil {
		write.Table, write.Rotated, write.Interleaved = r.angles[rope], rope.Rotated(r.HeadDim), rope.Interleaved
	}
	r.launch(write)
	r.launch(kernels.PagedAttention{AttentionShape: r.attentionShape, Out: r.attended, Query: r.qkv, QueryStride: r.width, Keys: keys, Values: values,
		Tables: group.tables, TableStride: group.stride, SeqLens: batch.seqLens, QueryStart: batch.queryStart, Plan: plan.AttentionPlan, Entries: plan.entries,
		Parts: r.scratch.attention.Pointer(), Arrived: r.scratch.arrived, Scale: r.AttentionFactor(), SoftCap: float32(r.AttentionCap), Window: r.Window(i), Sinks: l.sinks})
}

// normalizeWidth normalizes the queries or the keys of tokens, all heads of a token together.
func (r *Runner) normalizeWidth(x, weight cuda.Pointer, size, tokens int) {
	r.launch(kernels.RMSNorm{Type: r.kind, Out: x, In: x, Weight: weight, Tokens: tokens, N: size, Stride: r.width, Epsilon: r.headEpsilon()})
}
