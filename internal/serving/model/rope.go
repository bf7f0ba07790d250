package model

import (
	"math"
	"slices"
)

// Rope is rotary position embedding.
type Rope struct {
	Theta       float64
	Interleaved bool      // a pair is elements 2i and 2i+1 (GGUF's Llama); if false, i and i + half of the rotated elements
	Linear      float64   // if not 0, positions are divided by it
	Llama3      *Llama3   // if not nil, Llama 3.1's scaling of frequencies
	Factors     []float64 // if not nil, each frequency is divided by its factor (GGUF)
	Yarn        *Yarn     // if not nil, YaRN's scaling of frequencies
	Long        *LongRope // if not nil, Factors depend on the longest sequence
	Dim         int       // rotated elements of a head; 0 means all
	Attention   float64   // factor of cosines and sines; 0 means 1
}

// Yarn has the settings of rope_type "yarn".
type Yarn struct {
	Factor, OriginalLength float64
	// Pairs that rotate more than BetaFast times over OriginalLength positions keep their frequency. The frequencies of
	// pairs that rotate fewer than BetaSlow times are divided by Factor. Those of pairs in between are interpolated.
	BetaFast, BetaSlow float64
	Exact              bool // the indices of pairs with exactly BetaFast and BetaSlow rotations are not rounded
}

// LongRope has the settings of rope_type "longrope". The factors are Short if the server's maximum sequence length
// is at most OriginalLength, else Long.
type LongRope struct {
	Short, Long    []float64
	OriginalLength int
}

// Rotated returns the number of rotated elements of a head.
func (r *Rope) Rotated(headDim int) int {
	if r.Dim != 0 {
		return r.Dim
	}
	return headDim
}

// Llama3 has the settings of rope_type "llama3".
type Llama3 struct {
	Factor         float64 `json:"factor"`
	LowFreqFactor  float64 `json:"low_freq_factor"`
	HighFreqFactor float64 `json:"high_freq_factor"`
	OriginalLength float64 `json:"original_max_position_embeddings"`
}

func (r *Rope) check(headDim int) error {
	l, y, long := r.Llama3, r.Yarn, r.Long
	size := r.Rotated(headDim)
	switch {
	case size < 2 || size%2 != 0 || size > headDim:
		return refused("%d of %d elements of a head are rotated", size, headDim)
	case !(r.Attention >= 0) || math.IsInf(r.Attention, 0):
		return refused("cosines are multiplied by %v", r.Attention)
	case !(r.Theta > 0) || math.IsInf(r.Theta, 0):
		return refused("rope_theta is %v", r.Theta)
	case y != nil && !(y.Factor >= 1 && y.OriginalLength > 0 && y.BetaSlow > 0 && y.BetaFast >= y.BetaSlow && r.Theta > 1):
		return refused("yarn rope scaling with %+v", *y)
	case long != nil && (len(long.Short) != size/2 || len(long.Long) != size/2 || long.OriginalLength < 1):
		return refused("longrope scaling with %d and %d factors for %d frequencies, original length %d", len(long.Short),
			len(long.Long), size/2, long.OriginalLength)
	case !(r.Linear >= 0):
		return refused("positions are divided by %v", r.Linear)
	case r.Factors != nil && len(r.Factors) != size/2:
		return refused("%d factors for %d frequencies", len(r.Factors), size/2)
	case l != nil && !(l.Factor > 0 && l.OriginalLength > 0 && l.LowFreqFactor > 0 && l.HighFreqFactor >= l.LowFreqFactor):
		return refused("llama3 rope scaling with %+v", *l)
	}
	factors := r.Factors
	if long != nil {
		factors = append(slices.Clone(long.Short), long.Long...)
	}
	for _, f := range factors {
		if !(f > 0) || math.IsInf(f, 0) {
			return refused("a frequency is divided by %v", f)
		}
	}
	return nil
}

// RopeFor returns "long factors" or "short factors". LongRope uses its long factors if the maximum sequence length
// exceeds the model's original length, and its short factors otherwise. RopeFor returns "" for a model without
// LongRope.
func (c *Config) RopeFor(maxModelLen int) string {
	switch {
	case c.Rope == nil || c.Rope.Long == nil:
		return ""
	case maxModelLen > c.Rope.Long.OriginalLength:
		return "long factors"
	}
	return "short factors"
}

func (r *Rope) forLength(n int) *Rope {
	if r.Long == nil {
		return r
	}
	chosen := *r
	chosen.Factors = r.Long.Short
	if n > r.Long.OriginalLength {
		chosen.Factors = r.Long.Long
	}
	return &chosen
}

// Angles returns the cosines and sines of positions 0 to n-1, as [position][pair], for a maximum sequence length of
// maxModelLen tokens.
func (r *Rope) Angles(n, maxModelLen, headDim int) (cos, sin []float32) {
	var t tables
	t.extend(r.forLength(maxModelLen), n, n, headDim)
	return t.cos, t.sin
}

// frequencies returns the angle by which each pair of a head rotates per position.
func (r *Rope) frequencies(headDim int) []float64 {
	size := r.Rotated(headDim)
	f := make([]float64, size/2)
	for i := range f {
		f[i] = math.Pow(r.Theta, -2*float64(i)/float64(size))
		if r.Yarn != nil {
			f[i] *= r.Yarn.frequencyFactor(i, size, r.Theta)
		}
		if r.Llama3 != nil {
			f[i] = r.Llama3.scale(f[i])
		}
		if r.Factors != nil {
			f[i] /= r.Factors[i]
		}
		if r.Linear > 0 {
			f[i] /= r.Linear
		}
	}
	return f
}

// scale returns the scaled frequency for f. A frequency is not changed if its pair rotates more than HighFreqFactor
// times over OriginalLength positions. If its pair rotates fewer than LowFreqFactor times, the frequency is divided by
// Factor. Frequencies in between are interpolated.
func (l *Llama3) scale(f float64) float64 {
	rotations := l.OriginalLength * f / (2 * math.Pi)
	switch {
	case rotations < l.LowFreqFactor, rotations == l.HighFreqFactor && l.HighFreqFactor == l.LowFreqFactor:
		return f / l.Factor
	case rotations > l.HighFreqFactor:
		return f
	}
	smooth := (rotations - l.LowFreqFactor) / (l.HighFreqFactor - l.LowFreqFactor)
	return (1-smooth)*f/l.Factor + smooth*f
}

// frequencyFactor returns the factor for the frequency of pair i. The factor is 1 if the pair rotates often over
// OriginalLength positions, 1 / Factor if it rotates seldom, and a value between these two in other cases. size is the
// number of rotated elements.
func (y *Yarn) frequencyFactor(i, size int, theta float64) float64 {
	pair := func(rotations float64) float64 { // the index of the pair that rotates so many times
		return float64(size) * math.Log(y.OriginalLength/(rotations*2*math.Pi)) / (2 * math.Log(theta))
	}
	low, high := pair(y.BetaFast), pair(y.BetaSlow)
	if !y.Exact {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(size-1))
	ramp := max(0, min(1, (float64(i)-low)/max(0.001, high-low)))
	return ramp/y.Factor + 1 - ramp
}

// yarnAttention returns 0.1 × scale × ln(factor) + 1, or 1 if factor is not above 1. factor is the one by which YaRN
// divides frequencies. If config.json has no attention_factor in rope_scaling, YaRN multiplies cosines and sines by
//
//	yarnAttention(factor, 1)
//
// or, if rope_scaling has both mscale and mscale_all_dim, by
//
//	yarnAttention(factor, mscale) / yarnAttention(factor, mscale_all_dim)
func yarnAttention(factor, scale float64) float64 {
	if factor <= 1 {
		return 1
	}
	return 0.1*scale*math.Log(factor) + 1
}

// tables are cosines and sines: [positions][rotated elements/2].
type tables struct{ cos, sin []float32 }

// extend extends the tables to at least n positions, but not beyond limit positions. It extends them by at least half
// of their length, and to at least 2,048 positions. An extension is therefore seldom necessary.
func (t *tables) extend(r *Rope, n, limit, headDim int) {
	half := r.Rotated(headDim) / 2
	have := len(t.cos) / half
	if n <= have {
		return
	}
	n = min(limit, max(n, have+have/2, 2048))
	cos, sin := make([]float32, n*half), make([]float32, n*half)
	copy(cos, t.cos)
	copy(sin, t.sin)
	for i, f := range r.frequencies(headDim) {
		for p := have; p < n; p++ {
			s, c := math.Sincos(float64(p) * f)
			if r.Attention != 0 {
				s, c = s*r.Attention, c*r.Attention
			}
			cos[p*half+i], sin[p*half+i] = float32(c), float32(s)
		}
	}
	t.cos, t.sin = cos, sin
}
