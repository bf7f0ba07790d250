package model

import (
	"fmt"
	"math"
)

// Rope is rotary position embedding.
type Rope struct {
	Theta       float64
	Interleaved bool      // pairs are elements 2i and 2i+1 (GGUF's Llama), not i and i + half
	Linear      float64   // positions are divided by it; 0 or 1: not
	Llama3      *Llama3   // frequencies are stretched as Llama 3.1 does
	Factors     []float64 // each frequency is divided by its own (GGUF); nil: not
}

// Llama3 are the settings of rope_type "llama3".
type Llama3 struct {
	Factor         float64 `json:"factor"`
	LowFreqFactor  float64 `json:"low_freq_factor"`
	HighFreqFactor float64 `json:"high_freq_factor"`
	OriginalLength float64 `json:"original_max_position_embeddings"`
}

func (r *Rope) check(headDim int) error {
	l := r.Llama3
	switch {
	case !(r.Theta > 0) || math.IsInf(r.Theta, 0):
		return fmt.Errorf("%w: rope_theta is %v", ErrModel, r.Theta)
	case !(r.Linear >= 0):
		return fmt.Errorf("%w: positions are divided by %v", ErrModel, r.Linear)
	case r.Factors != nil && len(r.Factors) != headDim/2:
		return fmt.Errorf("%w: %d factors for %d frequencies", ErrModel, len(r.Factors), headDim/2)
	case l != nil && !(l.Factor > 0 && l.OriginalLength > 0 && l.LowFreqFactor > 0 && l.HighFreqFactor > l.LowFreqFactor):
		return fmt.Errorf("%w: llama3 rope scaling with %+v", ErrModel, *l)
	}
	return nil
}

// frequencies are the angles per position of a head's pairs.
func (r *Rope) frequencies(headDim int) []float64 {
	f := make([]float64, headDim/2)
	for i := range f {
		f[i] = math.Pow(r.Theta, -2*float64(i)/float64(headDim))
		if r.Llama3 != nil {
			f[i] = r.Llama3.stretch(f[i])
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

// stretch leaves waves that are short against the original length as they are,
// makes long ones longer by the factor, and those between in between.
func (l *Llama3) stretch(f float64) float64 {
	turns := l.OriginalLength * f / (2 * math.Pi)
	switch {
	case turns < l.LowFreqFactor:
		return f / l.Factor
	case turns > l.HighFreqFactor:
		return f
	}
	smooth := (turns - l.LowFreqFactor) / (l.HighFreqFactor - l.LowFreqFactor)
	return (1-smooth)*f/l.Factor + smooth*f
}

// tables are cosines and sines: [positions][headDim/2].
type tables struct{ cos, sin []float32 }

// reach extends the tables to position n-1. They grow by half or more.
func (t *tables) reach(r *Rope, n, most, headDim int) {
	half := headDim / 2
	have := len(t.cos) / half
	if n <= have {
		return
	}
	n = min(most, max(n, have+have/2, 2048))
	cos, sin := make([]float32, n*half), make([]float32, n*half)
	copy(cos, t.cos)
	copy(sin, t.sin)
	for i, f := range r.frequencies(headDim) {
		for p := have; p < n; p++ {
			s, c := math.Sincos(float64(p) * f)
			cos[p*half+i], sin[p*half+i] = float32(c), float32(s)
		}
	}
	t.cos, t.sin = cos, sin
}
