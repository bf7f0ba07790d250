package cost

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// A Spread says how much the times of iterations with the same work differed on the measured machine. To simulate an
// iteration, the model computes a time from the work, and multiplies it by a factor that it draws at random from one of
// the two lists. The mean of each list is 1, within 1 %. Without factors, iterations with the same work take the same
// time.
type Spread struct {
	Decodes []float64 `json:"decodes,omitempty"` // of iterations without prompts
	Prompts []float64 `json:"prompts,omitempty"` // of iterations with prompts
}

// maxFactors is far more than a simulation needs.
const maxFactors = 1000

func (s *Spread) check() error {
	if s == nil {
		return nil
	}
	for _, factors := range [][]float64{s.Decodes, s.Prompts} {
		if len(factors) > maxFactors {
			return fmt.Errorf("spread: %d factors, must be at most %d", len(factors), maxFactors)
		}
		sum := 0.0
		for _, f := range factors {
			if err := checkRange("spread: a factor", f, "1e-06", "1000"); err != nil {
				return err
			}
			sum += f
		}
		if n := float64(len(factors)); sum < 0.99*n || sum > 1.01*n {
			return errors.New("spread: the mean of the factors must be 1")
		}
	}
	return nil
}

// String describes the range of the factors without the smallest and the largest 5 %. It returns "" if there are no
// factors.
func (s *Spread) String() string {
	if s == nil {
		return ""
	}
	var parts []string
	for _, class := range []struct {
		name    string
		factors []float64
	}{{"without prompts", s.Decodes}, {"with prompts", s.Prompts}} {
		if n := len(class.factors); n > 0 {
			sorted := slices.Sorted(slices.Values(class.factors))
			parts = append(parts, fmt.Sprintf("%.2f to %.2f times this %s", sorted[n/20], sorted[n-1-n/20], class.name))
		}
	}
	if parts == nil {
		return ""
	}
	return "nine of ten iterations take " + strings.Join(parts, ", ")
}

// Iteration returns how long iteration n of a run takes: Seconds multiplied by one of the factors in m.spread, or
// Seconds if there are none for this work. For one model, the choice of the factor depends only on n and w, so a
// repeated run has the same times.
func (m *Model) Iteration(n int, w Work) float64 {
	seconds := m.Seconds(w)
	factors := m.spread.Decodes
	if w.Prompt > 0 {
		factors = m.spread.Prompts
	}
	if len(factors) == 0 {
		return seconds
	}
	return seconds * factors[choose(uint64(n), uint64(w.Seqs)<<40^uint64(w.Context)<<20^uint64(w.Prompt), len(factors))]
}

// choose returns a number in [0,n) that depends only on a and b. Over many pairs of a and b, the numbers are
// uniformly distributed (the finalizer of SplitMix64).
func choose(a, b uint64, n int) int {
	x := a*0x9e3779b97f4a7c15 ^ b*0xd1342543de82ef95
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	high, _ := bits.Mul64(x^x>>31, uint64(n))
	return int(high)
}
