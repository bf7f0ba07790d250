package sampling

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// frequencies samples many times with different seeds.
func frequencies(p Params, logits []float32) []float64 {
	const n = 6000
	var s Sampler
	f := make([]float64, len(logits))
	for seed := range uint64(n) {
		p.Seed = seed * 7919
		f[s.Sample(&p, State{}, logits)] += 1.0 / n
	}
	return f
}

func TestTokensComeAsOftenAsTheyAreLikely(t *testing.T) {
	logits := []float32{float32(math.Log(0.1)), float32(math.Log(0.4)), float32(math.Log(0.2)), float32(math.Log(0.3))}
	tests := []struct {
		name   string
		change func(*Params)
		want   []float64
	}{
		{"as they are", func(*Params) {}, []float64{0.1, 0.4, 0.2, 0.3}},
		{"greedy", func(p *Params) { p.Temperature = 0 }, []float64{0, 1, 0, 0}},
		{"temperature", func(p *Params) { p.Temperature = 0.5 }, []float64{1.0 / 30, 16.0 / 30, 4.0 / 30, 9.0 / 30}},
		{"top-k", func(p *Params) { p.TopK = 2 }, []float64{0, 4.0 / 7, 0, 3.0 / 7}},
		{"top-p", func(p *Params) { p.TopP = 0.65 }, []float64{0, 4.0 / 7, 0, 3.0 / 7}},
		{"top-p reached exactly at the last", func(p *Params) { p.TopP = 0.95 }, []float64{0.1, 0.4, 0.2, 0.3}},
		{"top-p of what top-k leaves", func(p *Params) { p.TopK, p.TopP = 3, 0.4 }, []float64{0, 1, 0, 0}},
		{"min-p", func(p *Params) { p.MinP = 0.6 }, []float64{0, 4.0 / 7, 0, 3.0 / 7}},
		{"min-p with top-k", func(p *Params) { p.MinP, p.TopK = 0.6, 3 }, []float64{0, 4.0 / 7, 0, 3.0 / 7}},
		{"bias", func(p *Params) { p.LogitBias = map[int32]float32{0: 100} }, []float64{1, 0, 0, 0}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := Default()
			test.change(&p)
			require.NoError(t, p.Check(4))
			for i, f := range frequencies(p, logits) {
				require.InDelta(t, test.want[i], f, 0.02, "token %d", i)
			}
		})
	}
}

func TestMinPKeepsWhatIsExactlyAsLikely(t *testing.T) {
	p := Default()
	p.MinP = 1
	require.InDeltaSlice(t, []float64{0.5, 0.5, 0}, frequencies(p, []float32{1, 1, 0}), 0.02)
}

func TestPenaltiesChangeWhatWasSaid(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Params)
		state  State
		want   int32
	}{
		{"none", func(*Params) {}, State{Output: []int32{0}}, 0},
		{"frequency counts", func(p *Params) { p.FrequencyPenalty = 0.3 }, State{Output: []int32{0, 0}}, 1},
		{"frequency once is not enough", func(p *Params) { p.FrequencyPenalty = 0.3 }, State{Output: []int32{0}}, 0},
		{"presence does not count", func(p *Params) { p.PresencePenalty = 0.3 }, State{Output: []int32{0, 0}}, 0},
		{"presence", func(p *Params) { p.PresencePenalty = 0.6 }, State{Output: []int32{0}}, 1},
		{"presence forgets the prompt", func(p *Params) { p.PresencePenalty = 0.6 }, State{Prompt: []int32{0}}, 0},
		{"repetition sees the prompt", func(p *Params) { p.RepetitionPenalty = 2 }, State{Prompt: []int32{0, 0}}, 1},
		{"repetition of what is negative", func(p *Params) { p.RepetitionPenalty = 2 }, State{Output: []int32{0, 1, 2}}, 0},
		{"repetition makes what is negative less", func(p *Params) {
			p.RepetitionPenalty, p.LogitBias = 2, map[int32]float32{0: -2, 1: -1.75, 2: -100} // -1 and -1.15
		}, State{Output: []int32{0}}, 1},
		{"bias", func(p *Params) { p.LogitBias = map[int32]float32{1: 0.5} }, State{}, 1},
		{"forbidden", func(*Params) {}, State{Forbidden: []int32{0, 1}}, 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := Default()
			p.Temperature = 0
			test.change(&p)
			var s Sampler
			require.Equal(t, test.want, s.Sample(&p, test.state, []float32{1, 0.6, -0.1}))
		})
	}
}

func TestTheRandomNumberIsOfTheSeedAndThePlace(t *testing.T) {
	require.Equal(t, Random(5, 3), Random(5, 3))
	require.NotEqual(t, Random(5, 3), Random(5, 4))
	require.NotEqual(t, Random(5, 3), Random(6, 3))
}

func TestLogprobsAreOfTheLogitsAsTheyCame(t *testing.T) {
	var s Sampler
	logits := []float32{2, 1, 3, 1}
	chosen, top, ok := s.TopLogprobs(logits, 1, 3, State{})
	require.True(t, ok)
	norm := math.Log(math.Exp(2) + 2*math.E + math.Exp(3))
	require.InDelta(t, 1-norm, chosen.Value, 1e-6)
	require.Equal(t, []int32{2, 0, 1}, []int32{top[0].Token, top[1].Token, top[2].Token})
	require.InDelta(t, 3-norm, top[0].Value, 1e-6)
	_, top, _ = s.TopLogprobs(logits, 1, 0, State{})
	require.Empty(t, top)
	require.Equal(t, []int{2, 4, 1, 4}, []int{Rank(logits, 0), Rank(logits, 1), Rank(logits, 2), Rank(logits, 3)})
}

// Ensure that TakesLargest is false if a parameter can change the token of a greedy request. A new parameter must
// make TakesLargest false or be added to the list in this test.
func TestNoParameterIsLostWithTheLargestLogit(t *testing.T) {
	withoutEffect := []string{"Temperature", "TopP", "TopK", "MinP", "Seed", "Logprobs", "PromptLogprobs"}
	fields := reflect.TypeFor[Params]()
	for i := range fields.NumField() {
		p := Default()
		p.Temperature = 0
		require.True(t, p.TakesLargest(State{}))
		name, field := fields.Field(i).Name, reflect.ValueOf(&p).Elem().Field(i)
		switch field.Kind() {
		case reflect.Float64:
			field.SetFloat(0.5)
		case reflect.Map:
			field.Set(reflect.ValueOf(map[int32]float32{1: 1}))
		case reflect.Bool:
			field.SetBool(true)
		default:
			require.Contains(t, withoutEffect, name, "give the field a value here")
		}
		if !slices.Contains(withoutEffect, name) {
			require.False(t, p.TakesLargest(State{}), "%s has no effect if the largest logit is taken; add it to adjustments",
				name)
		}
	}
	p := Default()
	p.Temperature = 0
	require.False(t, p.TakesLargest(State{Forbidden: []int32{1}}))
}

// Ensure that Sample chooses no token if a logit is NaN or +Inf, or if all logits are -Inf. Some logits may be
// -Inf, because of masks.
func TestNoTokenIsChosenOfLogitsThatAreNotFinite(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, test := range []struct {
		name   string
		logits []float32
		state  State
		ok     bool
	}{
		{"NaN", []float32{1, nan, 0, 0}, State{}, false},
		{"only NaN", []float32{nan, nan, nan, nan}, State{}, false},
		{"+Inf", []float32{1, 0, inf, 0}, State{}, false},
		{"only -Inf", []float32{-inf, -inf, -inf, -inf}, State{}, false},
		{"only masks", []float32{1, 2, 3, 4}, State{Forbidden: []int32{0, 1, 2, 3}}, false},
		{"-Inf", []float32{-inf, 1, -inf, -inf}, State{}, true},
		{"masks", []float32{1, 2, 3, 4}, State{Forbidden: []int32{0, 2, 3}}, true},
	} {
		for _, temperature := range []float64{0, 1} {
			for _, topP := range []float64{1, 0.5} {
				p := Default()
				p.Temperature, p.TopP = temperature, topP
				var s Sampler
				want := int32(-1)
				if test.ok {
					want = 1
				}
				require.Equal(t, want, s.Sample(&p, test.state, test.logits), "%s, %v", test.name, temperature)
			}
		}
		if test.state.Forbidden == nil {
			_, _, ok := new(Sampler).TopLogprobs(test.logits, 1, 1, State{})
			require.Equal(t, test.ok, ok, test.name)
		}
	}
}
