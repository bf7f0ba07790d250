package model

import "llmmemory/internal/serving/model/matrix"

// gateAttention multiplies the outputs of attention by the sigmoids of a projection of the layer's inputs (Qwen3-Next's
// attn_output_gate).
func (r *Runner) gateAttention(l *layer, normed []float32, n int) {
	r.gates = grow(r.gates, n*l.attnGate.out)
	r.multiply(&l.attnGate, r.gates, normed, n)
	r.each(n, rowJob{op: opSigmoid, width: l.attnGate.out})
}

func (r *Runner) gateRow(row, width int) {
	gate, out := r.gates[row*width:][:width], r.attended[row*width:][:width]
	matrix.Exp(gate, 0, -1)
	for i, power := range gate {
		out[i] /= 1 + power
	}
}
