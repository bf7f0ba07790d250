package attention

import "math"

var portable = kernels{
	name:      "portable",
	scores:    scoresGo,
	softmax:   softmaxGo,
	values:    valuesGo,
	addValues: addValuesGo,
	combine:   combineGo,
}

func scoresGo(q []float32, rows, size int, keys []float32, n int, out []float32) {
	for i := range rows {
		q := q[i*size:][:size]
		for tile := range n {
			var sum [16]float32
			for j, x := range q {
				k := (*[16]float32)(keys[(tile*size+j)*16:])
				for lane := range sum {
					sum[lane] += x * k[lane]
				}
			}
			copy(out[i*scoreStride+tile*16:], sum[:])
		}
	}
}

func softmaxGo(scores []float32, x *softmax) (m, l float32) {
	m = negInf
	for i := range scores {
		if i < x.from || i >= x.to {
			scores[i] = negInf
			continue
		}
		s := scores[i] * x.scale
		if x.slope != 0 {
			s += x.slope * (x.offset + float32(i))
		}
		scores[i] = s
		if s > m || s != s {
			m = s
		}
	}
	base := m
	if m == negInf {
		base = 0
	}
	var lanes [16]float32
	for i, s := range scores {
		p := weight(s - base)
		scores[i] = p
		lanes[i%16] += p
	}
	for half := 8; half > 0; half /= 2 {
		for i := range half {
			lanes[i] += lanes[i+half]
		}
	}
	return m, lanes[0]
}

// minExponent is where weights end: e^x below is no normal number and becomes 0.
const minExponent = -87.336544

// weight is e^x.
func weight(x float32) float32 {
	if x < minExponent {
		return 0
	}
	return float32(math.Exp(float64(x)))
}

func valuesGo(p []float32, rows, n int, values []float32, chunks int, out []float32, stride int) {
	for i := range rows {
		o := out[i*stride:][:chunks*chunk]
		clear(o)
		addValuesGo(p[i*scoreStride:][:n], values, chunks, o)
	}
}

func addValuesGo(p []float32, values []float32, chunks int, out []float32) {
	for c := range chunks {
		o := (*[chunk]float32)(out[c*chunk:])
		for t, x := range p {
			v := (*[chunk]float32)(values[c*panelValues+t*chunk:])
			for i := range o {
				o[i] += x * v[i]
			}
		}
	}
}

func combineGo(x, y []float32, a, b float32) {
	for i := range x {
		x[i] = x[i]*a + y[i]*b
	}
}

// capScores turns products into cap·tanh(scale·product / cap).
func capScores(scores []float32, scale, softCap float32) {
	for i, s := range scores {
		scores[i] = softCap * float32(math.Tanh(float64(s*scale/softCap)))
	}
}
