package model

import (
	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/model/matrix"
	"llmmemory/internal/serving/model/weights"
)

// A latent has the matrices of a layer with latent attention. The keys and values of the heads are never made: the
// matrix that would make a head's keys multiplies the head's query instead, and the matrix that would make its values
// multiplies the weighted sum of the latent keys. These are the absorbed products of MLA. Prompts and decoding use the
// same products, so a token has the same bits in both.
type latent struct {
	queryNorm []float32 // nil if layer.qkv has the queries
	queryUp   linear    // empty if layer.qkv has the queries
	keyNorm   []float32
	keyUp     []linear // of each head, [KVRank][NopeDim]
	valueUp   []linear // of each head, [ValueDim][KVRank]
}

func (a *latent) eachLinear(f func(*linear)) {
	f(&a.queryUp)
	for i := range a.keyUp {
		f(&a.keyUp[i])
		f(&a.valueUp[i])
	}
}

// latent loads the attention of a layer. The outputs of layer.qkv are the queries, or what queryUp makes them from, and
// then the latent key.
func (l *loader) latent(dst *layer, named func(name string) string) {
	c, a, n := l.config, l.config.Latent, l.names
	x := &latent{keyNorm: l.normWeights(named(n.latentNorm), a.KVRank)}
	dst.latent = x
	query := c.NumHeads * c.HeadDim
	first, width := named(n.q), query
	if a.QueryRank > 0 {
		first, width = named(n.queryDown), a.QueryRank
		x.queryNorm = l.normWeights(named(n.queryNorm), a.QueryRank)
		x.queryUp = l.linear(shape{inputs: a.QueryRank, outputs: []int{query}, adapts: true}, named(n.queryUp))
	}
	dst.qkv = l.linear(shape{inputs: c.HiddenSize, outputs: []int{width, a.keySize()}, adapts: true}, first, named(n.latent))
	for h := 0; h < c.NumHeads && l.err == nil; h++ {
		if n.keyUp != "" {
			x.keyUp = append(x.keyUp, l.rowsOf(named(n.keyUp), c.NumHeads*a.KVRank, span{h * a.KVRank, (h + 1) * a.KVRank}, a.NopeDim))
			x.valueUp = append(x.valueUp, l.rowsOf(named(n.valueUp), c.NumHeads*a.ValueDim, span{h * a.ValueDim, (h + 1) * a.ValueDim}, a.KVRank))
			continue
		}
		both, start := a.NopeDim+a.ValueDim, h*(a.NopeDim+a.ValueDim)
		x.keyUp = append(x.keyUp, l.columnsOf(named(n.keysAndValues), c.NumHeads*both, span{start, start + a.NopeDim}, a.KVRank))
		x.valueUp = append(x.valueUp, l.rowsOf(named(n.keysAndValues), c.NumHeads*both, span{start + a.NopeDim, start + both}, a.KVRank))
	}
	dst.out = l.rowParallel(shape{inputs: c.NumHeads * a.ValueDim, outputs: []int{c.HiddenSize}, adapts: true}, named(n.out))
}

// rowsOf loads some rows of a tensor as a matrix.
func (l *loader) rowsOf(name string, outputs int, rows span, inputs int) linear {
	return l.linear(shape{inputs: inputs, outputs: []int{outputs}, rows: [][]span{{rows}}}, name)
}

// columnsOf loads the transpose of some rows of a tensor as a matrix. It has the type of the tensor if that is a type of
// floats, else F32.
func (l *loader) columnsOf(name string, outputs int, rows span, inputs int) linear {
	t := l.matrix(name, outputs, inputs)
	if l.err != nil {
		return linear{}
	}
	s := stack{tensors: []*weights.Tensor{t}, cuts: []*cut{{source: &transposed{tensor: t, rows: rows}, rows: []span{{0, inputs}},
		width: rows.len(), cols: span{0, rows.len()}}}}
	return linear{parts: []*matrix.Matrix{l.packAs(floats(t), &s)}, out: inputs}
}

// latentMemory is the memory of a Runner for latent attention.
type latentMemory struct {
	lowered []float32 // [rows][QueryRank]
	queries []float32 // [rows][heads][HeadDim], if queryUp makes them
	latent  []float32 // [rows][heads][keySize]: queries for latent keys, then the weighted sums of latent keys
	heads   headsJob
}

// widths returns the number of outputs of layer.qkv, the number of elements of the queries, or of what they are made
// from, among them, and the number of inputs of layer.out.
func (r *Runner) widths() (qkv, query, out int) {
	m := r.model
	if a := m.Latent; a != nil {
		query = m.NumHeads * m.HeadDim
		if a.QueryRank > 0 {
			query = a.QueryRank
		}
		return query + a.keySize(), query, m.NumHeads * a.ValueDim
	}
	if m.Mixed != nil {
		out = m.NumHeads * m.largestHead()
		return out + 2*max(m.NumKVHeads*m.HeadDim, m.Mixed.NumKVHeads*m.Mixed.HeadDim), out, out
	}
	query = r.local.NumHeads * m.HeadDim
	return query + 2*r.local.NumKVHeads*m.HeadDim, query, query
}

// prepareLatent prepares a batch of n tokens for latent attention.
func (r *Runner) prepareLatent(n int) {
	m, x := r.model, &r.latent
	a, width := m.Latent, m.NumHeads*m.Latent.keySize()
	x.lowered, x.latent = grow(x.lowered, n*a.QueryRank), grow(x.latent, n*width)
	if a.QueryRank > 0 {
		x.queries = grow(x.queries, n*m.NumHeads*m.HeadDim)
	}
	r.tokens.Value = attention.Tensor{}
	r.batch.Query, r.batch.Out = attention.Float32s(x.latent, width), attention.Float32s(x.latent, width)
}

// latentQueries makes the queries for latent keys in r.latent.latent, and the latent keys in r.qkv, from the outputs of
// layer.qkv.
func (r *Runner) latentQueries(l *layer, b *Batch, angles *rotary) {
	m, x, n := r.model, &r.latent, len(b.Tokens)
	qkv, _, _ := r.widths()
	queries, stride := r.qkv, qkv
	if m.Latent.QueryRank > 0 {
		r.each(n, rowJob{op: opLower, layer: l})
		r.multiply(&l.latent.queryUp, x.queries, x.lowered, n)
		queries, stride = x.queries, m.NumHeads*m.HeadDim
	}
	r.each(n, rowJob{op: opLatent, layer: l, positions: b.Positions, angles: angles})
	size := m.Latent.keySize()
	r.multiplyHeads(l.latent.keyUp, strided{queries, stride, m.HeadDim}, strided{x.latent, m.NumHeads * size, size}, n)
}

// latentValues makes the inputs of layer.out from the weighted sums of latent keys.
func (r *Runner) latentValues(l *layer, n int) {
	m, size, value := r.model, r.model.Latent.keySize(), r.model.Latent.ValueDim
	r.multiplyHeads(l.latent.valueUp, strided{r.latent.latent, m.NumHeads * size, size},
		strided{r.attended, m.NumHeads * value, value}, n)
}

// lowerRow normalizes what queries are made from.
func (r *Runner) lowerRow(l *layer, row int) {
	qkv, rank, _ := r.widths()
	rmsNorm(r.latent.lowered[row*rank:][:rank], r.qkv[row*qkv:][:rank], l.latent.queryNorm, r.model.NormEps)
}

// latentRow normalizes and rotates a row's latent key, and rotates its queries. It copies the rotated parts of the
// queries to the queries for latent keys.
func (r *Runner) latentRow(j *rowJob, row int) {
	m, x := r.model, &r.latent
	a, all, size := m.Latent, m.NumHeads*m.HeadDim, m.Latent.keySize()
	qkv, query, _ := r.widths()
	queries, key := r.qkv[row*qkv:][:query], r.qkv[row*qkv+query:][:size]
	if a.QueryRank > 0 {
		queries = x.queries[row*all:][:all]
	}
	rmsNorm(key[:a.KVRank], key[:a.KVRank], j.layer.latent.keyNorm, m.NormEps)
	m.rotate(key[a.KVRank:], j.positions[row], j.angles.rope, &j.angles.tables)
	m.rotate(queries[a.NopeDim:], j.positions[row], j.angles.rope, &j.angles.tables)
	for h := range m.NumHeads {
		copy(x.latent[(row*m.NumHeads+h)*size+a.KVRank:][:a.RopeDim], queries[h*m.HeadDim+a.NopeDim:])
	}
}

// strided is rows with a vector for each head. The rows begin row elements apart, and in a row, the heads begin head
// elements apart.
type strided struct {
	values    []float32
	row, head int
}

func (s *strided) vector(row, head int) []float32 { return s.values[row*s.row+head*s.head:] }

// A headsJob multiplies a vector of each row and head by the head's matrix. It is a parallel.Task: each call of Do
// computes some rows of a head.
type headsJob struct {
	linear  []linear
	src     strided
	dst     strided
	rows    int
	pieces  int // into which the rows are divided
	memory  []headMemory
	scratch []*matrix.Scratch
}

// headMemory is the memory of a worker.
type headMemory struct {
	input  matrix.Input
	values []float32
}

// headRows is the largest number of rows that a call of headsJob.Do computes.
const headRows = 64

func (r *Runner) multiplyHeads(heads []linear, src, dst strided, rows int) {
	j := &r.latent.heads
	if j.memory == nil {
		j.memory, j.scratch = make([]headMemory, r.pool.Size()), r.scratch
	}
	j.linear, j.src, j.dst, j.rows, j.pieces = heads, src, dst, rows, (rows+headRows-1)/headRows
	r.pool.Run(len(heads)*j.pieces, j)
}

// Do implements parallel.Task.
func (j *headsJob) Do(worker, i int) {
	w, head := &j.memory[worker], i/j.pieces
	start := i % j.pieces * headRows
	rows, m := min(headRows, j.rows-start), j.linear[head].parts[0]
	w.values = grow(w.values, rows*m.In)
	for k := range rows {
		copy(w.values[k*m.In:][:m.In], j.src.vector(start+k, head))
	}
	for call := range w.input.Set(w.values, rows, m.In, m.Form()) {
		w.input.Pack(call)
	}
	m.Product(j.dst.vector(start, head), j.dst.row, &w.input, 0, m.Panels(), j.scratch[worker])
}
