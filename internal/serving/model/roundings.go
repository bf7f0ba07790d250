package model

import (
	"llmmemory/internal/serving/model/matrix"
	"llmmemory/internal/serving/model/weights"
)

// pairsOf reports whether t can be packed as W16A16, which multiplies pairs of inputs. The inputs can be divided equally
// among 2 or 4 workers. If the number of inputs is a multiple of 8, the number of inputs of each worker is even.
func pairsOf(t *weights.Tensor, inputs int) bool {
	return (t.DType == weights.F16 || t.DType == weights.BF16) && inputs%8 == 0
}

// A Rounding is a choice of types of matrix: products with type Kept do not round activations, and those with type
// Rounded do. Block is the number of inputs that share a scale, or 0 without scales.
type Rounding struct {
	Kept, Rounded matrix.Type
	Block         int
}

// noteRounding counts weights that were packed for activations that are not rounded, if they could be rounded.
func (l *loader) noteRounding(t *weights.Tensor, inputs int, m *matrix.Matrix) {
	r := Rounding{t.Packed(), t.Rounds(), t.Block()}
	if pairsOf(t, inputs) {
		r.Rounded = matrix.W16A16
	}
	if m != nil && m.Type == r.Kept && r.Rounded != matrix.F32 {
		l.roundings[r] += m.Bytes()
	}
}

// Rounding returns the choice of most of the weights that have one and whose activations are not rounded. ok is false if
// there are none.
func (m *Model) Rounding() (r Rounding, ok bool) {
	most := 0
	for choice, bytes := range m.roundings {
		if bytes > most || bytes == most && choice.Rounded < r.Rounded {
			r, most = choice, bytes
		}
	}
	return r, most > 0
}
