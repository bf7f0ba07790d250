package model

import (
	"slices"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/model/matrix"
)

type rowOp uint8

const (
	opNorm         rowOp = iota // x to normed
	opSquares                   // sums the squares of queries and keys
	opRotate                    // normalizes queries and keys with QKNorm, and rotates queries, and with RotatedNorm also keys
	opLower                     // normalizes what queries are made from
	opLatent                    // prepares queries and keys of latent attention
	opActivate                  // gateUp to act
	opRoute                     // logits of experts to chosen experts
	opCombine                   // results of experts to sums
	opAdd                       // adds sums, after bias and norm if they are given, to the residual stream
	opLogits                    // scales and caps logits
	opSigmoid                   // multiplies attended by sigmoids of gates
	opPrepareHeads              // decays and factors of heads with a state
	opGate                      // gates and norms of the outputs of heads with a state
	opMixedHeads                // normalizes and rotates queries and keys of layers with different heads, and sets their values
	opVectors                   // makes the vectors of the layers from embeddings
	opVectorGate                // multiplies the vectors of a layer by their gates
	opScale                     // multiplies the residual stream by the scale of a layer
)

// A rowJob does op for each row. It is a parallel.Task: each call of Do does some consecutive rows.
type rowJob struct {
	r         *Runner
	op        rowOp
	norm      *norm
	residual  []float32
	bias      []float32
	layer     *layer
	number    int // of the layer
	tokens    []int32
	positions []int32
	angles    *rotary
	width     int
	rows      int
	chunk     int
}

func (r *Runner) each(n int, j rowJob) {
	r.rows = j
	r.rows.r, r.rows.rows = r, n
	if r.rows.chunk = (n + r.pool.Size() - 1) / r.pool.Size(); n < 4 {
		r.rows.chunk = n // waking others would take longer
	}
	r.pool.Run((n+r.rows.chunk-1)/r.rows.chunk, &r.rows)
}

// Do implements parallel.Task.
func (j *rowJob) Do(_, i int) {
	r := j.r
	for row := i * j.chunk; row < min((i+1)*j.chunk, j.rows); row++ {
		switch j.op {
		case opNorm:
			hidden := r.model.HiddenSize
			r.model.normalize(r.normed[row*hidden:][:hidden], r.x[row*hidden:][:hidden], j.norm)
		case opSquares:
			r.squareRow(row)
		case opRotate:
			r.rotateRow(j, row)
		case opLower:
			r.lowerRow(j.layer, row)
		case opLatent:
			r.latentRow(j, row)
		case opActivate:
			r.activateRow(row, j.width)
		case opRoute:
			r.routing.choose(r.model.Experts, j.layer.experts.correction, row)
		case opCombine:
			r.combineRow(j.layer, row)
		case opAdd:
			r.addRow(j, row)
		case opSigmoid:
			r.gateRow(row, j.width)
		case opPrepareHeads:
			r.scan.prepareHeads(row)
		case opGate:
			r.scan.gate(row)
		case opMixedHeads:
			r.mixedRow(j, row)
		case opVectors:
			r.vectorsRow(int(j.tokens[row]), row)
		case opVectorGate:
			r.vectorGateRow(j.number, row)
		case opScale:
			x, hidden := r.x, r.model.HiddenSize
			for i := row * hidden; i < (row+1)*hidden; i++ {
				x[i] *= j.layer.mixed.scale
			}
		case opLogits:
			r.model.FinishLogits(r.logits[row*r.model.VocabSize:][:r.model.VocabSize])
		}
	}
}

func (r *Runner) queryAndKey(row int) (query, key []float32) {
	q, kv := r.local.NumHeads*r.model.HeadDim, r.local.NumKVHeads*r.model.HeadDim
	qkv := r.qkv[row*(q+2*kv):][:q+kv]
	return qkv[:q], qkv[q:]
}

func (r *Runner) squareRow(row int) {
	query, key := r.queryAndKey(row)
	for i, x := range [2][]float32{query, key} {
		var sums [4]float32
		n := 4 / r.model.part.size()
		for k := range n {
			sum := 0.0
			for _, v := range x[len(x)/n*k : len(x)/n*(k+1)] {
				sum += float64(v) * float64(v)
			}
			sums[k] = float32(sum)
		}
		r.squares[2*row+i] = (sums[0] + sums[1]) + (sums[2] + sums[3])
	}
}

func (r *Runner) rotateRow(j *rowJob, row int) {
	m := r.model
	query, key := r.queryAndKey(row)
	switch m.QKNorm {
	case HeadNorm:
		normHeads(query, m.HeadDim, j.layer.qNorm, m.NormEps)
		normHeads(key, m.HeadDim, j.layer.kNorm, m.NormEps)
	case WidthNorm:
		scaleBy(query, j.layer.qNorm, r.squares[2*row], m.NumHeads*m.HeadDim, m.NormEps)
		scaleBy(key, j.layer.kNorm, r.squares[2*row+1], m.NumKVHeads*m.HeadDim, m.NormEps)
	}
	if j.angles == nil {
		if m.Temperature != nil {
			factor := m.Temperature.factor(j.positions[row])
			for i := range query {
				query[i] *= factor
			}
		}
		return
	}
	m.rotate(query, j.positions[row], j.angles.rope, &j.angles.tables)
	if m.QKNorm == RotatedNorm {
		m.rotate(key, j.positions[row], j.angles.rope, &j.angles.tables)
		normHeads(query, m.HeadDim, j.layer.qNorm, m.NormEps)
		normHeads(key, m.HeadDim, j.layer.kNorm, m.NormEps)
	}
}

// ones are weights of a norm without weights, and factors of an activation without gates.
var ones = slices.Repeat([]float32{1}, max(attention.MaxHeadSize, channelsPerTask))

// normHeads normalizes heads of dim elements.
func normHeads(heads []float32, dim int, weight []float32, eps float64) {
	for h := 0; h < len(heads); h += dim {
		rmsNorm(heads[h:][:dim], heads[h:][:dim], weight, eps)
	}
}

// addRow adds the bias to a row of r.sums, then normalizes and scales the row, then adds it to the residual stream. It
// leaves out the steps that the layer does not have. In a group, every worker does this, with the same operations as a
// worker that computes alone.
func (r *Runner) addRow(j *rowJob, row int) {
	m := r.model
	x, sums := j.residual[row*m.HiddenSize:][:m.HiddenSize], r.sums[row*m.HiddenSize:][:m.HiddenSize]
	for i, b := range j.bias {
		sums[i] += b
	}
	if j.norm.weight != nil {
		m.normalize(sums, sums, j.norm)
	}
	if scale := float32(m.ResidualScale); scale != 0 {
		for i := range sums {
			sums[i] *= scale
		}
	}
	for i, v := range sums {
		x[i] += v
	}
}

func (r *Runner) activateRow(row, width int) {
	a := r.model.Activation
	gateUp := r.gateUp[row*width:][:width]
	switch a {
	case GELU:
		gelu(r.act[row*width:][:width], gateUp)
	case ReLU2:
		relu(r.act[row*width:][:width], gateUp)
		for i, v := range r.act[row*width:][:width] {
			r.act[row*width+i] = v * v
		}
	case ReLU:
		relu(r.act[row*width:][:width], gateUp)
	default:
		n := width / 2
		prepareGate(a, gateUp[:n], gateUp[n:])
		matrix.SiLUMul(r.act[row*n:][:n], gateUp[:n], gateUp[n:])
	}
}
