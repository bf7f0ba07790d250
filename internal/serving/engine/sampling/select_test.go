package sampling

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that keepK, keepP and heaviest select the first tokens of the sorted list of all tokens, even if many
// weights are equal.
func TestWhatIsKeptIsTheBeginningOfASortedList(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 1))
	for range 300 {
		weights := make([]float32, 1+rnd.IntN(2000))
		levels := 1 + rnd.IntN(400)
		for i := range weights {
			switch rnd.IntN(3) {
			case 0:
				weights[i] = float32(rnd.IntN(levels)) / float32(levels)
			case 1:
				weights[i] = rnd.Float32() * rnd.Float32() * rnd.Float32()
			}
		}
		weights[rnd.IntN(len(weights))] = 1
		sorted := Sampler{logits: weights}
		order := make([]int32, len(weights))
		total := uint64(0)
		for i, w := range weights {
			order[i] = int32(i)
			total += integer(w)
		}
		slices.SortFunc(order, sorted.compare)

		k, p := 1+rnd.IntN(len(weights)), rnd.Float64()
		var want []int32
		for _, id := range order[:k] {
			if weights[id] >= 1.0/unit {
				want = append(want, id)
			}
		}
		slices.Sort(want)
		require.Equal(t, want, kept(weights, func(s *Sampler) { s.keepK(k) }))

		n, sum := 0, uint64(0)
		for n < len(order) && sum < fraction(part(p), total) {
			sum += integer(weights[order[n]])
			n++
		}
		require.Equal(t, slices.Sorted(slices.Values(order[:n])), kept(weights, func(s *Sampler) { s.keepP(p) }))

		top := min(20, len(weights))
		s := Sampler{logits: weights}
		require.Equal(t, order[:top], s.heaviest(top, &State{}))
		st := State{Allowed: make([]uint64, (len(weights)+63)/64)}
		for i := range st.Allowed {
			st.Allowed[i] = rnd.Uint64() & rnd.Uint64()
		}
		order = slices.DeleteFunc(order, func(id int32) bool { return !st.Allows(id) })
		require.Equal(t, order[:min(top, len(order))], append([]int32{}, s.heaviest(top, &st)...))
	}
}

// kept are the tokens that have a weight afterwards.
func kept(weights []float32, f func(*Sampler)) (ids []int32) {
	s := Sampler{logits: slices.Clone(weights)}
	f(&s)
	for i, w := range s.logits {
		if w >= 1.0/unit {
			ids = append(ids, int32(i))
		}
	}
	return ids
}

func TestSamplingAllocatesNothing(t *testing.T) {
	logits := make([]float32, 4000)
	for i := range logits {
		logits[i] = float32(i*7919%1000) / 100
	}
	p := Default()
	p.TopP, p.TopK, p.MinP, p.PresencePenalty, p.RepetitionPenalty = 0.9, 1000, 1e-6, 0.5, 1.1
	st := State{Prompt: []int32{1, 2, 3}, Output: []int32{4, 5, 6}}
	var s Sampler
	require.Zero(t, testing.AllocsPerRun(100, func() {
		p.Seed++
		s.Sample(&p, st, logits)
	}))
}

// Ensure that top-p keeps no further token when the sum of the kept weights equals p exactly, both in the middle of
// a bucket and at its end.
func TestTopPIsReachedByAnExactSum(t *testing.T) {
	for _, test := range []struct {
		name          string
		weights, want []float32
		p             float64
	}{
		{"the first of two that weigh the same", []float32{1, 1}, []float32{1, 0}, 0.5},
		{"a bucket of one", []float32{0.25, 1, 0.5, 0.25}, []float32{0, 1, 0, 0}, 0.5},
		{"two buckets", []float32{0.25, 1, 0.5, 0.25}, []float32{0, 1, 0.5, 0}, 0.75},
		{"the first of a bucket", []float32{0.25, 1, 0.5, 0.25}, []float32{0.25, 1, 0.5, 0}, 0.875},
		{"all", []float32{0.25, 1, 0.5, 0.25}, []float32{0.25, 1, 0.5, 0.25}, math.Nextafter(1, 0)},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := Sampler{logits: slices.Clone(test.weights)}
			s.keepP(test.p)
			require.Equal(t, test.want, s.logits)
		})
	}
}
