package pooling_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/serving/engine/pooling"
)

// Ensure that a Pool makes the same vector however its prompt is divided into steps, also if a step computes tokens
// again that an earlier one has computed.
func TestAVectorDoesNotDependOnTheSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 3
		tokens := rapid.IntRange(1, 20).Draw(t, "tokens")
		states := rapid.SliceOfN(rapid.Float32Range(-1e3, 1e3), size*tokens, size*tokens).Draw(t, "states")
		last, mean := make([]float32, size), make([]float32, size)
		for i := range size {
			last[i] = states[(tokens-1)*size+i]
			sum := 0.0
			for k := range tokens {
				sum += float64(states[k*size+i])
			}
			mean[i] = float32(sum / float64(tokens))
		}
		for kind, want := range map[pooling.Type][]float32{pooling.Last: last, pooling.Mean: mean} {
			p := pooling.New(kind)
			add := func() {} // of the step before, which ends after the next one is scheduled
			for start := 0; start < tokens; {
				end := rapid.IntRange(start+1, tokens).Draw(t, "end")
				first := p.First(start, end, end == tokens)
				add()
				add = func() { p.Add(states[first*size:end*size], size, first) }
				if start = end; start < tokens && rapid.Bool().Draw(t, "preempted") {
					start = 0
				}
			}
			add()
			got, ok := p.Vector()
			require.True(t, ok)
			require.Equal(t, want, got, kind)
		}
	})
}

func TestAVectorThatIsNotFiniteIsNoVector(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		p := pooling.New(pooling.Mean)
		p.Add([]float32{1, float32(bad), 2, 3}, 2, 0)
		_, ok := p.Vector()
		require.False(t, ok, bad)
	}
	_, ok := pooling.New(pooling.Last).Vector()
	require.False(t, ok, "no state was added")
}

func TestEmbeddings(t *testing.T) {
	tests := []struct {
		name       string
		vector     []float32
		dimensions int
		normalize  bool
		want       []float32
	}{
		{"as it is", []float32{3, 4, 12}, 0, false, []float32{3, 4, 12}},
		{"cut", []float32{3, 4, 12}, 2, false, []float32{3, 4}},
		{"of length 1", []float32{3, 4, 12}, 0, true, []float32{3. / 13, 4. / 13, 12. / 13}},
		{"cut, and then of length 1", []float32{3, 4, 12}, 2, true, []float32{3. / 5, 4. / 5}},
		{"of zeros", []float32{0, 0, 1}, 2, true, []float32{0, 0}},
		{"whose squares are too large for float32", []float32{3 << 80, 4 << 80}, 0, true, []float32{3. / 5, 4. / 5}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, pooling.Embedding(test.vector, test.dimensions, test.normalize))
		})
	}
}

func TestScoresAreProbabilitiesOfTheFirstLabel(t *testing.T) {
	vector := []float32{2, 1}
	tests := []struct {
		name       string
		classifier pooling.Classifier
		want       float64
	}{
		{"sigmoid", pooling.Classifier{{1, 1}}, 1 / (1 + math.Exp(-3))},
		{"yes and no", pooling.Classifier{{1, 1}, {0, 1}}, math.Exp(3) / (math.Exp(3) + math.Exp(1))},
		{"three labels", pooling.Classifier{{0, 1}, {1, 0}, {0, 0}}, math.Exp(1) / (math.Exp(1) + math.Exp(2) + 1)},
		{"surely", pooling.Classifier{{1000, 0}, {0, 0}}, 1},
		{"surely not", pooling.Classifier{{-1000, 0}, {0, 0}}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.InDelta(t, test.want, test.classifier.Score(vector), 1e-15)
		})
	}
}
