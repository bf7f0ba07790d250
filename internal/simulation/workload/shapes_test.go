package workload

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden requests anew")

func TestNamedWorkloadsDoNotChange(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			l, _, err := Named(name)
			require.NoError(t, err)
			s, err := Gamma(l, 1, 1, 1, 0, 20)
			require.NoError(t, err)
			var out bytes.Buffer
			fmt.Fprintln(&out, "arrival prompt output shared")
			for _, r := range drain(t, s) {
				fmt.Fprintf(&out, "%.6f %d %d %d\n", r.Arrival, r.Prompt, r.Output, r.Shared)
			}
			path := filepath.Join("testdata", name+".golden")
			if *update {
				require.NoError(t, os.WriteFile(path, out.Bytes(), 0o644))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), out.String(), "go test ./internal/simulation/workload -update writes it anew")
		})
	}
}

// drain reads a source to its end, and checks that it stays at the end.
func drain(t testing.TB, s Source) []Request {
	var all []Request
	for {
		var r Request
		err := s.Next(&r)
		if errors.Is(err, io.EOF) {
			require.ErrorIs(t, s.Next(&r), io.EOF, "after the end")
			return all
		}
		require.NoError(t, err)
		r.Hashes = append([]int64(nil), r.Hashes...)
		all = append(all, r)
	}
}

func sample(l Lengths, n int) (prompts, outputs, sums []float64) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range n {
		p, o := l.Draw(rng)
		prompts, outputs, sums = append(prompts, float64(p)), append(outputs, float64(o)), append(sums, float64(p+o))
	}
	return prompts, outputs, sums
}

func meanSD(x []float64) (mean, sd float64) {
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		sd += (v - mean) * (v - mean) / float64(len(x))
	}
	return mean, math.Sqrt(sd)
}

func correlation(x, y []float64) float64 {
	mx, sx := meanSD(x)
	my, sy := meanSD(y)
	c := 0.0
	for i := range x {
		c += (x[i] - mx) * (y[i] - my) / float64(len(x))
	}
	return c / sx / sy
}

// scores returns the normal score of each value's rank. Equal values get the mean of their ranks.
func scores(x []float64) []float64 {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	sort.Slice(order, func(a, b int) bool { return x[order[a]] < x[order[b]] })
	s := make([]float64, len(x))
	for i := 0; i < len(x); {
		j := i
		for j < len(x) && x[order[j]] == x[order[i]] {
			j++
		}
		for k := i; k < j; k++ {
			s[order[k]] = score(float64(i+j) / 2 / float64(len(x)))
		}
		i = j
	}
	return s
}

const draws = 60_000

// Ensure that ShareGPT's lengths have the means, deviations and quantiles of the paper's data
// (simulation/PAPER.md §1).
func TestShareGPTHasThePapersMeansAndQuantiles(t *testing.T) {
	l, info, err := Named("sharegpt")
	require.NoError(t, err)
	require.Equal(t, Measured, info.Trust)
	prompts, outputs, sums := sample(l, draws)
	levels := []float64{.05, .10, .25, .50, .75, .90, .95, .99}
	for _, c := range []struct {
		name      string
		got       []float64
		mean, sd  float64
		quantiles []float64
	}{
		{"prompts", prompts, 161.18, 299.3, []float64{7, 9, 15, 35, 133, 506, 863, 1460}},
		{"outputs", outputs, 338.00, 283.9, []float64{22, 45, 128, 271, 458, 754, 899, 1280}},
		{"sums", sums, 499.2, 420.8, nil},
	} {
		mean, sd := meanSD(c.got)
		t.Logf("%s: mean %.2f, sd %.1f", c.name, mean, sd)
		require.InEpsilon(t, c.mean, mean, 0.01, c.name)
		require.InEpsilon(t, c.sd, sd, 0.02, c.name)
		sort.Float64s(c.got)
		for i, want := range c.quantiles {
			got := c.got[int(levels[i]*draws)]
			require.InDelta(t, want, got, 1+0.02*want, "%s, quantile %v", c.name, levels[i])
		}
		require.GreaterOrEqual(t, c.got[0], 1.0)
	}
	require.Less(t, sums[draws-1], 2048.0)

	// The correlation in the table, 0.217, is the one of all pairs. The pairs that pass the filter have a lower one.
	c := *l.(*copula)
	prompts, outputs, _ = sample(&c, draws)
	require.InDelta(t, 0.17, correlation(scores(prompts), scores(outputs)), 0.01)
	c.limit = math.MaxInt
	prompts, outputs, _ = sample(&c, draws)
	require.InDelta(t, 0.217, correlation(scores(prompts), scores(outputs)), 0.01)
}

// Ensure that Alpaca's prompts and outputs are independent, and have the inferred means and deviations
// (simulation/PAPER.md §1).
func TestAlpacaHasThePapersLengths(t *testing.T) {
	for name, blocks := range map[string]float64{"alpaca": 0.71, "alpaca-inputs": 0.65} {
		l, info, err := Named(name)
		require.NoError(t, err)
		require.Equal(t, Inferred, info.Trust)
		prompts, outputs, _ := sample(l, draws)
		require.InDelta(t, 0, correlation(scores(prompts), scores(outputs)), 0.01)
		mean, _ := meanSD(prompts)
		require.InEpsilon(t, 19.31, mean, 0.01)
		mean, sd := meanSD(outputs)
		require.InEpsilon(t, 58.45, mean, 0.01)
		require.InEpsilon(t, 57.95, sd, 0.02)
		// The artifact has batches of 14 requests. On average over the batches, the longest prompt of a batch has 50.8
		// tokens, and the longest output has 192.1 tokens (simulation/PAPER.md §1). The prompts of alpaca are only just
		// within the tolerance.
		var p, o, whole float64
		for i := 0; i+14 <= draws; i += 14 {
			p += slices.Max(prompts[i:i+14]) / (draws / 14)
			o += slices.Max(outputs[i:i+14]) / (draws / 14)
		}
		require.InEpsilon(t, 50.8, p, 0.07)
		require.InEpsilon(t, 192.1, o, 0.03)
		for _, p := range prompts {
			whole += math.Floor(p/16) / draws
		}
		require.InDelta(t, blocks, whole, 0.01, "whole blocks of a prompt")
		require.Equal(t, 3.0, slices.Min(prompts))
		require.Equal(t, 1.0, slices.Min(outputs))
	}
}

// Ensure that most prompts of the chatbot are cut to 1,024 tokens. None may be longer.
func TestMostChatPromptsAreCut(t *testing.T) {
	l, info, err := Named("chat")
	require.NoError(t, err)
	require.Equal(t, Modelled, info.Trust)
	prompts, outputs, _ := sample(l, draws)
	sort.Float64s(prompts)
	sort.Float64s(outputs)
	require.Equal(t, 1024.0, prompts[draws-1])
	require.Equal(t, 1024.0, outputs[draws-1])
	cut := float64(draws-sort.SearchFloat64s(prompts, 1024)) / draws
	require.InDelta(t, 0.66, cut, 0.01)
	mean, _ := meanSD(prompts)
	require.InDelta(t, 862, mean, 3)
}

func TestTranslationsHaveTheirPrefixInFront(t *testing.T) {
	for name, prefix := range map[string]int{"wmt16-1shot": 80, "wmt16-5shot": 341} {
		l, info, err := Named(name)
		require.NoError(t, err)
		require.Equal(t, Assumed, info.Trust)
		require.Contains(t, info.Description, "assumption")
		require.Equal(t, prefix, SharedBy(l))
		prompts, outputs, _ := sample(l, draws)
		mean, _ := meanSD(prompts)
		require.InDelta(t, 30+float64(prefix), mean, 0.2)
		mean, _ = meanSD(outputs)
		require.InDelta(t, 35, mean, 0.2)
		require.InDelta(t, 0.9, correlation(scores(prompts), scores(outputs)), 0.01)
		sort.Float64s(prompts)
		require.Greater(t, prompts[0], float64(prefix))
	}
}

func TestAnUnknownWorkloadIsAnsweredWithTheKnownOnes(t *testing.T) {
	_, _, err := Named("shareGPT")
	require.ErrorIs(t, err, ErrUnknown)
	for _, name := range Names() {
		require.ErrorContains(t, err, name)
	}
}
