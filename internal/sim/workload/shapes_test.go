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
	"sort"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden requests anew")

// Ensure that a named workload's stream of requests does not change.
func TestNamedWorkloadsDoNotChange(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			l, _, err := Named(name)
			require.NoError(t, err)
			s, err := Poisson(l, 1, 1, 0, 20)
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
			require.Equal(t, string(want), out.String(), "go test ./internal/sim/workload -update writes it anew")
		})
	}
}

// drain reads a source to its end, which must be one, again and again.
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

// sample returns many draws, each column in the order of drawing.
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

// scores returns the normal scores of the ranks, ties sharing their middle rank.
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

const draws = 200_000

// Ensure that ShareGPT has the means, deviations and quantiles of the paper's
// data (sim/PAPER.md §1).
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
}

// Ensure that prompts and outputs of ShareGPT are correlated as the table says
// before the filter, and as far as that leaves it after it.
func TestShareGPTCorrelation(t *testing.T) {
	c := *shareGPT().(*copula)
	prompts, outputs, _ := sample(&c, draws)
	require.InDelta(t, 0.17, correlation(scores(prompts), scores(outputs)), 0.01)
	c.limit = math.MaxInt
	prompts, outputs, _ = sample(&c, draws)
	require.InDelta(t, 0.217, correlation(scores(prompts), scores(outputs)), 0.01)
}

// Ensure that the fit of levels has converged.
func TestShareGPTFit(t *testing.T) {
	c := *shareGPT().(*copula)
	prompt, output := c.prompt.levels, c.output.levels
	require.InDeltaSlice(t, prompt, c.fitted(tableLevels(t), &c.prompt, &c.output), 1e-9)
	require.InDeltaSlice(t, output, c.fitted(tableLevels(t), &c.output, &c.prompt), 1e-9)
	require.NotEqual(t, tableLevels(t), prompt)
}

func tableLevels(t testing.TB) []float64 {
	table, err := quantiles()
	require.NoError(t, err)
	return table.P
}

func TestLevelIsTheInverseOfAt(t *testing.T) {
	m := shareGPT().(*copula).prompt
	for u := 0.0005; u < 0.999; u += 0.0007 {
		require.InDelta(t, u, m.level(m.at(u)), 1e-9)
	}
	require.Equal(t, 1.0, m.at(0))
	require.Equal(t, 2028.0, m.at(1))
	require.Equal(t, 0.0, m.level(0.5))
	require.Equal(t, 1.0, m.level(2029))
}

// Ensure that Alpaca has the means and the spread that were inferred (sim/PAPER.md §1),
// and that its lengths are independent.
// Ensure that the other shape of Alpaca's prompts cannot be distinguished from the first
// by their mean and their maxima, and has fewer whole blocks of 16 tokens.
func TestAlpacaInputsKeepTheMeanAndTheMaxima(t *testing.T) {
	whole := map[string]float64{}
	for _, name := range []string{"alpaca", "alpaca-inputs"} {
		l, _, err := Named(name)
		require.NoError(t, err)
		prompts, outputs, _ := sample(l, draws)
		mean, _ := meanSD(prompts)
		require.InEpsilon(t, 19.31, mean, 0.01)
		mean, _ = meanSD(outputs)
		require.InEpsilon(t, 58.45, mean, 0.01)
		longest := 0.0
		for i := 0; i+14 <= draws; i += 14 {
			longest += max14(prompts[i:]) / (draws / 14)
		}
		t.Logf("%s: longest of 14: %.1f", name, longest)
		require.InEpsilon(t, 50.8, longest, 0.07)
		for _, p := range prompts {
			whole[name] += math.Floor(p/16) / draws
		}
	}
	t.Logf("whole blocks of a prompt: %v", whole)
	require.InDelta(t, 0.71, whole["alpaca"], 0.01)
	require.InDelta(t, 0.65, whole["alpaca-inputs"], 0.01)
}

func TestAlpacaHasThePapersLengths(t *testing.T) {
	l, info, err := Named("alpaca")
	require.NoError(t, err)
	require.Equal(t, Inferred, info.Trust)
	prompts, outputs, _ := sample(l, draws)
	require.InDelta(t, 0, correlation(scores(prompts), scores(outputs)), 0.01)
	mean, sd := meanSD(prompts)
	require.InEpsilon(t, 19.31, mean, 0.01)
	require.InEpsilon(t, 19.31*math.Sqrt(math.Expm1(0.36)), sd, 0.02)
	mean, sd = meanSD(outputs)
	require.InEpsilon(t, 58.45, mean, 0.01)
	require.InEpsilon(t, 57.95, sd, 0.02)
	sort.Float64s(prompts)
	sort.Float64s(outputs)
	require.Equal(t, 3.0, prompts[0])
	require.Equal(t, 1.0, outputs[0])

	// Largest of 14 requests, on average (sim/PAPER.md §1: 50.8 and 192.1). The shape
	// of prompts only just fits them.
	prompts, outputs, _ = sample(l, draws)
	var p, o float64
	for i := 0; i+14 <= draws; i += 14 {
		p += max14(prompts[i:]) / (draws / 14)
		o += max14(outputs[i:]) / (draws / 14)
	}
	t.Logf("largest of 14: %.1f and %.1f", p, o)
	require.InEpsilon(t, 50.8, p, 0.07)
	require.InEpsilon(t, 192.1, o, 0.03)
}

func max14(x []float64) float64 {
	m := x[0]
	for _, v := range x[1:14] {
		m = max(m, v)
	}
	return m
}

// Ensure that most prompts of the chatbot are cut, and none is longer.
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
		require.Equal(t, prefix, sharedBy(l))
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

// Ensure that a prefix lengthens every prompt, and is known as shared.
func TestAPrefixLengthensEveryPrompt(t *testing.T) {
	s, err := Every(prefixed{fixed{7, 9}, 120}, 0, 1, 0, 2)
	require.NoError(t, err)
	want := Request{Prompt: 127, Output: 9, Shared: 120}
	require.Equal(t, []Request{want, want}, drain(t, s))
}

// Ensure that an unknown name is answered with those that are known.
func TestAnUnknownWorkloadIsAnsweredWithTheKnownOnes(t *testing.T) {
	_, _, err := Named("shareGPT")
	require.ErrorIs(t, err, ErrUnknown)
	for _, name := range Names() {
		require.ErrorContains(t, err, name)
	}
	require.Equal(t, []string{"sharegpt", "alpaca", "alpaca-inputs", "chat", "wmt16-1shot", "wmt16-5shot"}, Names())
	for _, name := range Names() {
		_, info, err := Named(name)
		require.NoError(t, err)
		require.Equal(t, name, info.Name)
		require.NotEmpty(t, info.Description)
		require.NotContains(t, info.Description, "\n")
	}
}

func BenchmarkDraw(b *testing.B) {
	for _, name := range Names() {
		b.Run(name, func(b *testing.B) {
			l, _, _ := Named(name)
			rng := rand.New(rand.NewPCG(1, 1))
			b.ReportAllocs()
			for b.Loop() {
				l.Draw(rng)
			}
		})
	}
}
