package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that Poisson arrivals have the rate asked for, and gaps that are
// exponential.
func TestPoissonArrivalsHaveTheRateAskedFor(t *testing.T) {
	l := fixed{1, 1}
	s, err := Poisson(l, 4, 1, 0, draws)
	require.NoError(t, err)
	var gaps []float64
	last := 0.0
	for _, r := range drain(t, s) {
		require.Greater(t, r.Arrival, last)
		gaps = append(gaps, r.Arrival-last)
		last = r.Arrival
	}
	require.Len(t, gaps, draws)
	mean, sd := meanSD(gaps)
	require.InEpsilon(t, 0.25, mean, 0.01)
	require.InEpsilon(t, 0.25, sd, 0.01)
	sort.Float64s(gaps)
	for _, u := range []float64{0.1, 0.5, 0.9, 0.99} {
		require.InEpsilon(t, -0.25*math.Log1p(-u), gaps[int(u*draws)], 0.03, "quantile %v", u)
	}
}

// Ensure that the end comes with time or count, whichever is first.
func TestArrivalsEndByTimeOrCount(t *testing.T) {
	l := fixed{1, 1}
	s, err := Poisson(l, 2, 1, 1000, 0)
	require.NoError(t, err)
	all := drain(t, s)
	require.InDelta(t, 2000, len(all), 150)
	require.Less(t, all[len(all)-1].Arrival, 1000.0)

	s, err = Poisson(l, 2, 1, 1000, 10)
	require.NoError(t, err)
	require.Equal(t, all[:10], drain(t, s))

	s, err = Every(l, 0.5, 1, 2, 0)
	require.NoError(t, err)
	var at []float64
	for _, r := range drain(t, s) {
		at = append(at, r.Arrival)
	}
	require.Equal(t, []float64{0, 0.5, 1, 1.5}, at)
}

// Ensure that the rate moves arrivals and nothing else, and the seed everything.
func TestTheRateMovesOnlyArrivalsAndTheSeedChangesAll(t *testing.T) {
	draw := func(rate float64, seed uint64) []Request {
		s, err := Poisson(shareGPT(), rate, seed, 0, 100)
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

func TestImpossibleArrivalsAreRefused(t *testing.T) {
	l := fixed{1, 1}
	nan, inf := math.NaN(), math.Inf(1)
	for _, rate := range []float64{0, -1, nan, inf} {
		_, err := Poisson(l, rate, 1, 0, 1)
		require.ErrorIs(t, err, ErrSetting, "rate %v", rate)
	}
	for _, until := range []float64{-1, nan, inf} {
		_, err := Poisson(l, 1, 1, until, 1)
		require.ErrorIs(t, err, ErrSetting, "until %v", until)
	}
	_, err := Poisson(l, 1, 1, 0, -1)
	require.ErrorIs(t, err, ErrSetting)
	for _, gap := range []float64{-1, nan, inf} {
		_, err := Every(l, gap, 1, 0, 1)
		require.ErrorIs(t, err, ErrSetting, "gap %v", gap)
	}
	_, err = Every(l, 0, 1, 10, 0)
	require.ErrorIs(t, err, ErrSetting, "endless at once")
	for _, factor := range []float64{0, -1, nan, inf} {
		_, err := AtMultiple(nil, factor)
		require.ErrorIs(t, err, ErrSetting, "factor %v", factor)
	}
}

// Ensure that a source can be cut, sped up and kept to what a model takes.
func TestASourceCanBeCutAndSpedUp(t *testing.T) {
	source := func() Source {
		s, err := Poisson(shareGPT(), 1, 1, 0, 1000)
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
	s, err := Every(l, 1, 1, 0, 3)
	require.NoError(t, err)
	require.Len(t, drain(t, WithoutLonger(s, longest)), 3, "a request may be exactly as long as the model takes")
}

// Ensure that requests without an end, next to all of which are too long, are given up.
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

// A rate is that of the requests that fit: 5 a second of which most were left out were once called 5.
func TestTheRateIsThatOfRequestsThatFit(t *testing.T) {
	sharegpt, _, err := Named("sharegpt")
	require.NoError(t, err)
	s, err := Poisson(sharegpt, 5, 1, 0, 0)
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

// fixed are requests that are all the same.
type fixed struct{ prompt, output int }

func (f fixed) Draw(*rand.Rand) (prompt, output int) { return f.prompt, f.output }
