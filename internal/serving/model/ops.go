package model

import (
	"math"

	"llmmemory/internal/serving/model/matrix"
)

func (m *Model) normalize(dst, x []float32, n *norm) {
	if m.Norm == LayerNorm {
		layerNorm(dst, x, n.weight, n.bias, m.NormEps)
		return
	}
	rmsNorm(dst, x, n.weight, m.NormEps)
}

func rmsNorm(dst, x, weight []float32, eps float64) {
	var s0, s1, s2, s3 float64
	i := 0
	for ; i+4 <= len(x); i += 4 {
		a, b, c, d := float64(x[i]), float64(x[i+1]), float64(x[i+2]), float64(x[i+3])
		s0, s1, s2, s3 = s0+a*a, s1+b*b, s2+c*c, s3+d*d
	}
	for ; i < len(x); i++ {
		s0 += float64(x[i]) * float64(x[i])
	}
	scale := float32(1 / math.Sqrt((s0+s1+s2+s3)/float64(len(x))+eps))
	dst, weight = dst[:len(x)], weight[:len(x)]
	for i, v := range x {
		dst[i] = v * scale * weight[i]
	}
}

// scaleBy is like rmsNorm, but x may be a part of a row. width is the number of values of the whole row, and
// squares is the sum of the squares of these values.
func scaleBy(x, weight []float32, squares float32, width int, eps float64) {
	scale := float32(1 / math.Sqrt(float64(squares)/float64(width)+eps))
	for i, v := range x {
		x[i] = v * scale * weight[i]
	}
}

func layerNorm(dst, x, weight, bias []float32, eps float64) {
	var sum, squares float64
	for _, v := range x {
		sum += float64(v)
	}
	mean := sum / float64(len(x))
	for _, v := range x {
		d := float64(v) - mean
		squares += d * d
	}
	scale, center := float32(1/math.Sqrt(squares/float64(len(x))+eps)), float32(mean)
	dst, weight, bias = dst[:len(x)], weight[:len(x)], bias[:len(x)]
	for i, v := range x {
		dst[i] = (v-center)*scale*weight[i] + bias[i]
	}
}

func gelu(dst, x []float32) {
	for i, v := range x {
		y := float64(v)
		dst[i] = float32(0.5 * y * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(y+0.044715*y*y*y))))
	}
}

// prepareGate changes gate and factor so that silu(gate) × factor becomes the result of the gated activation a.
func prepareGate(a Activation, gate, factor []float32) {
	switch a {
	case GatedGELU: // gelu(x) = x · sigmoid(x·t), approximated by tanh
		const c, d = 1.5957691216057308, 0.044715 // c = 2·sqrt(2/π)
		for i, x := range gate {
			t := c * (1 + d*x*x)
			gate[i], factor[i] = x*t, factor[i]/t
		}
	case ClampedSwiGLU:
		const limit, alpha = 7, 1.702
		for i, x := range gate {
			gate[i], factor[i] = alpha*min(x, limit), (max(-limit, min(factor[i], limit))+1)/alpha
		}
	}
}

func relu(dst, x []float32) {
	for i, v := range x {
		dst[i] = max(v, 0)
	}
}

// ChangesLogits reports whether FinishLogits changes anything.
func (c *Config) ChangesLogits() bool { return c.LogitScale != 0 || c.LogitCap != 0 }

// FinishLogits scales and caps logits.
func (c *Config) FinishLogits(x []float32) {
	if c.LogitScale != 0 {
		for i := range x {
			x[i] *= float32(c.LogitScale)
		}
	}
	if c.LogitCap == 0 {
		return
	}
	limit := float32(c.LogitCap)
	var powers [256]float32 // e^(-2|x / limit|)
	for ; len(x) > 0; x = x[min(len(x), len(powers)):] {
		piece := powers[:min(len(x), len(powers))]
		for i := range piece {
			piece[i] = -float32(math.Abs(float64(x[i])))
		}
		matrix.Exp(piece, 0, 2/limit)
		for i, p := range piece {
			x[i] = float32(math.Copysign(float64(limit*(1-p)/(1+p)), float64(x[i])))
		}
	}
}

func (m *Model) rotate(heads []float32, position int32, r *Rope, t *tables) {
	rotateHeads(heads, m.HeadDim, position, r, t)
}

// rotateHeads rotates heads of dim elements.
func rotateHeads(heads []float32, dim int, position int32, r *Rope, t *tables) {
	half := r.Rotated(dim) / 2
	cos := t.cos[int(position)*half:][:half]
	sin := t.sin[int(position)*half:][:half]
	for h := 0; h < len(heads); h += dim {
		if r.Interleaved {
			head := heads[h:][:2*half]
			for i, c := range cos {
				a, b := head[2*i], head[2*i+1]
				head[2*i], head[2*i+1] = a*c-b*sin[i], b*c+a*sin[i]
			}
			continue
		}
		low, high := heads[h:][:half], heads[h+half:][:half]
		for i, c := range cos {
			a, b := low[i], high[i]
			low[i], high[i] = a*c-b*sin[i], b*c+a*sin[i]
		}
	}
}
