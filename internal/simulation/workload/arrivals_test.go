package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

func init() { level.CollectLess() }

func TestGapsHaveTheRateAndTheVarianceOfTheirShape(t *testing.T) {
	for _, shape := range []float64{0.25, 1, 4} {
		s, err := Gamma(fixed{1, 1}, 4, shape, 1, 0, draws)
		require.NoError(t, err)
		var gaps []float64
		last := 0.0
		for _, r := range drain(t, s) {
			gaps = append(gaps, r.Arrival-last)
			last = r.Arrival
		}
		require.Len(t, gaps, draws)
		mean, sd := meanSD(gaps)
		require.InEpsilon(t, 0.25, mean, 0.02)
		require.InEpsilon(t, 0.25/math.Sqrt(shape), sd, 0.02)
		sort.Float64s(gaps)
		require.GreaterOrEqual(t, gaps[0], 0.0)
		for _, u := range []float64{0.1, 0.5, 0.9, 0.99} {
			if shape == 1 {
				require.InEpsilon(t, -0.25*math.Log1p(-u), gaps[int(u*draws)], 0.03, "quantile %v", u)
			}
		}
	}
}

func TestImpossibleArrivalsAreRefused(t *testing.T) {
	refuse := func(rate, shape, end float64, count int) {
		_, err := Gamma(fixed{1, 1}, rate, shape, 1, end, count)
		require.ErrorIs(t, err, ErrSetting, "%v, %v, %v, %v", rate, shape, end, count)
	}
	for _, bad := range []float64{-1, math.NaN(), math.Inf(1)} {
		refuse(bad, 1, 0, 1)
		refuse(1, bad, 0, 1)
		refuse(1, 1, bad, 1)
		_, err := AtMultiple(nil, bad)
		require.ErrorIs(t, err, ErrSetting)
	}
	refuse(0, 1, 0, 1)
	refuse(1, 0, 0, 1)
	refuse(1, 1, 0, -1)
}

func TestArrivalsEndByTimeOrCount(t *testing.T) {
	l := fixed{1, 1}
	s, err := Gamma(l, 2, 1, 1, 1000, 0)
	require.NoError(t, err)
	all := drain(t, s)
	require.InDelta(t, 2000, len(all), 150)
	require.Less(t, all[len(all)-1].Arrival, 1000.0)

	s, err = Gamma(l, 2, 1, 1, 1000, 10)
	require.NoError(t, err)
	require.Equal(t, all[:10], drain(t, s))

	s, err = Gamma(prefixed{fixed{7, 9}, 120}, 1, 1, 1, 0, 2)
	require.NoError(t, err)
	want := Request{Prompt: 127, Output: 9, Shared: 120}
	require.Equal(t, []Request{want, want}, drain(t, AtOnce(s)))
}

func TestTheRateMovesOnlyArrivalsAndTheSeedChangesAll(t *testing.T) {
	draw := func(rate float64, seed uint64) []Request {
		s, err := Gamma(shareGPT(), rate, 1, seed, 0, 100)
		require.NoError(t, err)
		return drain(t, s)
	}
	slow, fast, other := draw(1, 1), draw(4, 1), draw(1, 2)
	require.Equal(t, slow, draw(1, 1))
	require.NotEqual(t, slow[0].Arrival, other[0].Arrival)
	require.NotEqual(t, slow[0].Prompt, other[0].Prompt)
	for i := range slow {
		require.InEpsilon(t, slow[i].Arrival, 4*fast[i].Arrival, 1e-9)
		require.Equal(t, slow[i].Prompt, fast[i].Prompt)
		require.Equal(t, slow[i].Output, fast[i].Output)
	}
}

func TestASourceCanBeCutAndSpedUp(t *testing.T) {
	source := func() Source {
		s, err := Gamma(shareGPT(), 1, 1, 1, 0, 1000)
		require.NoError(t, err)
		return s
	}
	all := drain(t, source())
	require.Equal(t, all[:7], drain(t, FirstRequests(source(), 7)))
	require.Equal(t, all, drain(t, FirstRequests(source(), 2000)))
	require.Empty(t, drain(t, FirstRequests(source(), 0)))

	f, err := AtMultiple(source(), 2)
	require.NoError(t, err)
	for i, r := range drain(t, f) {
		require.Equal(t, all[i].Arrival/2, r.Arrival)
	}

	const longest = 500
	var short []Request
	for _, r := range all {
		if r.Prompt+r.Output <= longest {
			short = append(short, r)
		}
	}
	fitted := WithoutLonger(source(), longest)
	require.Equal(t, short, drain(t, fitted))
	require.Equal(t, len(all)-len(short), fitted.Dropped)
	require.NotZero(t, fitted.Dropped)

	l := fixed{300, 200}
	s, err := Gamma(l, 1, 1, 1, 0, 3)
	require.NoError(t, err)
	require.Len(t, drain(t, WithoutLonger(s, longest)), 3, "a request may be exactly as long as the model takes")
}

// Ensure that reading an endless workload ends with an error if almost all its requests are too long.
func TestRequestsThatAreAllTooLongAreGivenUp(t *testing.T) {
	sharegpt, _, err := Named("sharegpt")
	require.NoError(t, err)
	for _, c := range []struct {
		name    string
		lengths Lengths
		longest int
		want    error
	}{
		{"none fits", fixed{300, 200}, 499, ErrNoneFits},
		{"all fit", fixed{300, 200}, 500, nil},
		{"one in many thousands fits", sharegpt, 2, ErrNoneFits},
		{"most fit", sharegpt, 500, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Gamma(c.lengths, 1, 1, 0, 0, 0)
			require.NoError(t, err)
			fitted := WithoutLonger(s, c.longest)
			var r Request
			for range 2000 {
				if err = fitted.Next(&r); err != nil {
					break
				}
			}
			require.ErrorIs(t, err, c.want)
			if c.want != nil {
				require.ErrorContains(t, err, fmt.Sprintf("longer than the %d tokens of a sequence; raise --max-len", c.longest))
			}
		})
	}
	s, err := Gamma(fixed{300, 200}, 1, 1, 0, 0, 20_000)
	require.NoError(t, err)
	require.Empty(t, drain(t, WithoutLonger(s, 499)), "these have an end")
}

func TestTheRateIsThatOfRequestsThatFit(t *testing.T) {
	sharegpt, _, err := Named("sharegpt")
	require.NoError(t, err)
	s, err := Gamma(sharegpt, 5, 1, 1, 0, 0)
	require.NoError(t, err)
	fitted := WithoutLonger(s, 200)
	var r Request
	for range 10_000 {
		require.NoError(t, fitted.Next(&r))
		require.LessOrEqual(t, r.Prompt+r.Output, 200)
	}
	require.InEpsilon(t, 10_000/5.0, r.Arrival, 0.05)
	require.Greater(t, fitted.LeftOut(), 0.5)
}

type fixed struct{ prompt, output int }

func (f fixed) Draw(*rand.Rand) (prompt, output int) { return f.prompt, f.output }

// Ensure that random lengths are distributed as in vllm bench serve: uniformly, as whole numbers.
func TestRandomLengths(t *testing.T) {
	for _, c := range []struct {
		name      string
		prompt    int
		ratio     float64
		low, high int
	}{
		{"fixed", 100, 0, 100, 100},
		{"half", 100, 0.5, 50, 150},
		{"not whole", 5, 0.3, 3, 7},
		{"down to one", 1, 0.9, 1, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := Random(c.prompt, 7, c.ratio)
			require.NoError(t, err)
			prompts, outputs, _ := sample(l, 5_000)
			require.EqualValues(t, c.low, slices.Min(prompts))
			require.EqualValues(t, c.high, slices.Max(prompts))
			mean, _ := meanSD(prompts)
			require.InEpsilon(t, float64(c.low+c.high)/2, mean, 0.02)
			if c.ratio == 0 {
				_, output := l.Draw(rand.New(rand.NewPCG(1, 1)))
				require.Equal(t, 7, output)
			} else {
				require.NotEqual(t, slices.Min(outputs), slices.Max(outputs))
			}
		})
	}
	for _, bad := range []struct {
		prompt, output int
		ratio          float64
	}{{0, 1, 0}, {1, -1, 0}, {1, 1, 1}, {1, 1, -0.1}, {1 << 25, 1, 0}} {
		_, err := Random(bad.prompt, bad.output, bad.ratio)
		require.ErrorIs(t, err, ErrSetting)
	}
}
