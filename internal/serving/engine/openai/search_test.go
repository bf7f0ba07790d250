package openai

import (
	"cmp"
	"context"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/serving/engine/sampling"
)

// A kept is a beam of a search like vLLM's. Such a search keeps all beams until its end, and each beam has a copy of
// all its tokens.
type kept struct {
	tokens  []int32
	logprob float64
	ended   bool
}

func (f *search) keepAll(prompt []int32, tops func(answer []int32) []sampling.Logprob) []kept {
	order := func(beams []kept) []kept {
		score := func(b kept) float64 {
			n := len(b.tokens)
			if b.ended {
				n--
			}
			return b.logprob / math.Pow(float64(n), f.penalty)
		}
		slices.SortStableFunc(beams, func(a, b kept) int { return cmp.Compare(score(b), score(a)) })
		return beams[:min(f.width, len(beams))]
	}
	live, done := []kept{{tokens: prompt}}, []kept(nil)
	for step := 0; step < f.maxTokens && len(live) > 0 && len(live[0].tokens) < f.maxModelLen; step++ {
		var next []kept
		for _, b := range live {
			for _, t := range tops(b.tokens[len(prompt):]) {
				c := kept{append(slices.Clone(b.tokens), t.Token), b.logprob + float64(t.Value), slices.Contains(f.ends, t.Token)}
				if c.ended {
					done = append(done, c)
				} else {
					next = append(next, c)
				}
			}
		}
		live = order(next)
	}
	return order(append(done, live...))
}

// likely makes the search call the function tops instead of the engine. tops returns the most likely tokens
// after an answer.
func (f *search) likely(tops func(answer []int32) []sampling.Logprob) {
	f.next = func(_ context.Context, prompt []int32, beams []*beam) (all [][]sampling.Logprob, err error) {
		for _, b := range beams {
			all = append(all, tops(b.answer(prompt)))
		}
		return all, nil
	}
}

// Ensure that the result of a search does not change if all beams are kept until its end. The order of equal beams is
// the same too.
func TestBeamsAreThoseOfASearchThatKeepsAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &search{width: rapid.IntRange(1, 4).Draw(t, "width"), maxTokens: rapid.IntRange(1, 8).Draw(t, "maxTokens"),
			maxModelLen: rapid.IntRange(4, 12).Draw(t, "maxModelLen"), penalty: rapid.SampledFrom([]float64{-2, 0, 1, 3}).Draw(t, "penalty"),
			ends: []int32{0, 1, 2}[:rapid.IntRange(0, 3).Draw(t, "ends")]}
		values := rapid.SliceOfN(rapid.Float32Range(-3, 0), 5, 5).Draw(t, "logprobs")
		if rapid.Bool().Draw(t, "ties") {
			values = []float32{-1, -1, -1, -2, -2}
		}
		tops := func(answer []int32) (list []sampling.Logprob) {
			sum := len(answer)
			for _, token := range answer {
				sum = 3*sum + int(token)
			}
			for i := range 2 * f.width {
				token := int32(sum+i) % 9
				list = append(list, sampling.Logprob{Token: token, Value: values[(sum+int(token))%5]})
			}
			return list
		}
		f.likely(tops)
		prompt := []int32{7, 7, 7}
		got, err := f.run(t.Context(), prompt)
		require.NoError(t, err)
		want := f.keepAll(prompt, tops)
		require.Len(t, got, len(want))
		for i, b := range got {
			require.Equal(t, kept{append(slices.Clone(prompt), b.answer(prompt)...), b.logprob, b.ended}, want[i])
		}
	})
}

// Ensure that a search frees beams if they are not among the best. Its beams share the memory of common tokens.
func TestASearchForgetsBeamsThatAreNotAmongTheBest(t *testing.T) {
	const steps = 5000
	f := &search{width: 10, maxTokens: steps, maxModelLen: 1 << 20, penalty: 1}
	for end := range int32(19) { // of 20 tokens
		f.ends = append(f.ends, end)
	}
	tops := make([]sampling.Logprob, 20)
	for i := range tops {
		tops[i] = sampling.Logprob{Token: int32(i), Value: -1}
	}
	held := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, after, step := held(), uint64(0), 0
	f.next = func(_ context.Context, _ []int32, beams []*beam) (all [][]sampling.Logprob, err error) {
		if step++; step == steps {
			after = held()
		}
		return slices.Repeat([][]sampling.Logprob{tops}, len(beams)), nil
	}
	found, err := f.run(t.Context(), make([]int32, 1000))
	require.NoError(t, err)
	require.Len(t, found, 10)
	require.Less(t, after, before+2<<20) // all 95,000 beams would take 6 MB, and copies of their tokens 1.3 GB
}
