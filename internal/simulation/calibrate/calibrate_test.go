package calibrate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/simulation/cost"
)

func file(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "bench")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func fitOf(t *testing.T, text string) *Calibration {
	points, err := Read(file(t, text), Lengths{})
	require.NoError(t, err)
	c, err := Fit(points)
	require.NoError(t, err)
	return c
}

func (c *Calibration) saved(t *testing.T) cost.Measured {
	path := filepath.Join(t.TempDir(), "cost.json")
	require.NoError(t, c.Save(path, "mine", "a test"))
	m, err := cost.OpenMeasured(path)
	require.NoError(t, err)
	return m
}

func table(line cost.Linear, noise float64) string {
	rng := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	b.WriteString("batch,context,prompt,seconds\n")
	for _, batch := range []float64{1, 4, 16, 64} {
		for _, context := range []float64{128, 1024} {
			for _, prompt := range []float64{0, 256} {
				ms := line.Base + line.Seq*batch + line.Context*batch*context + line.Prompt*prompt
				fmt.Fprintf(&b, "%g,%g,%g,%g\n", batch, context, prompt, 1e-3*ms*(1+noise*rng.NormFloat64()))
			}
		}
	}
	return b.String()
}

// Ensure that the fit is exact if the measurements have no noise. With noise, the stated errors must be about as
// large as the noise.
func TestTheFitFindsTheLine(t *testing.T) {
	line := cost.Linear{Base: 6.1, Seq: 0.02, Context: 5e-5, Prompt: 0.03}
	c := fitOf(t, table(line, 0))
	require.InEpsilon(t, line.Base, c.Linear.Base, 1e-6)
	require.InEpsilon(t, line.Seq, c.Linear.Seq, 1e-6)
	require.InEpsilon(t, line.Context, c.Linear.Context, 1e-6)
	require.InEpsilon(t, line.Prompt, c.Linear.Prompt, 1e-6)
	require.Equal(t, 16, c.Fit.Points)
	require.Less(t, c.Fit.Worst, 1e-6)

	c = fitOf(t, table(line, 0.05))
	require.InEpsilon(t, line.Base, c.Linear.Base, 0.1)
	require.True(t, c.Fit.Median > 0.01 && c.Fit.Median < 0.1, "%v", c.Fit)
}

// Ensure that no coefficient is negative. If a quantity is 0 in all points, its coefficient must be 0.
func TestPartsAreNotNegative(t *testing.T) {
	c, err := Fit([]Point{{Steps: 1, Seqs: 1, Seconds: 0.02}, {Steps: 1, Seqs: 8, Seconds: 0.019},
		{Steps: 1, Seqs: 16, Seconds: 0.018}})
	require.NoError(t, err)
	require.Zero(t, c.Linear.Seq)
	require.Zero(t, c.Linear.Prompt)
	require.InDelta(t, 19, c.Linear.Base, 0.6)
	require.Contains(t, c.Fit.String(), "fewer than 8: without data")
}

func TestEachBenchmarksOutputIsRead(t *testing.T) {
	for _, c := range []struct {
		name, text string
		lengths    Lengths
		want       []Point
	}{
		{"llama-batched-bench", `{"n_kv_max": 2048, "n_batch": 2048, "is_pp_shared": 0, "pp": 128, "tg": 3, "pl": 2, "n_kv": 262, "t_pp": 0.5, "speed_pp": 512, "t_tg": 0.3, "speed_tg": 20, "t": 0.8, "speed": 327}
`, Lengths{}, []Point{
			{Label: "2 x prompt of 128", Steps: 1, Seqs: 2, Prompt: 256, Seconds: 0.5},
			{Label: "2 x 3 tokens after 128", Steps: 3, Seqs: 6, Context: 2 * (129 + 130 + 131), Seconds: 0.3},
		}},
		{"a shared prompt", `{"is_pp_shared": 1, "pp": 100, "tg": 1, "pl": 4, "t_pp": 0.5, "t_tg": 0.3}`, Lengths{}, []Point{
			{Label: "1 x prompt of 100", Steps: 1, Seqs: 4, Prompt: 100, Seconds: 0.5},
			{Label: "4 x 1 tokens after 100", Steps: 1, Seqs: 4, Context: 4 * 101, Seconds: 0.3},
		}},
		{"vllm bench latency", `{"avg_latency": 0.9, "latencies": [0.9], "percentiles": {"50": 0.9}}`, Lengths{8, 32, 4},
			[]Point{
				{Label: "batch 8, 32 in, 4 out", Steps: 4, Seqs: 32, Context: 8 * (33 + 34 + 35), Prompt: 256, Seconds: 0.9},
			}},
		{"vllm bench serve, alone",
			`{"completed": 10, "duration": 20, "total_input_tokens": 1000, "total_output_tokens": 1010, "mean_tpot_ms": 10, "mean_ttft_ms": 30, "max_concurrency": 1}`, Lengths{}, []Point{
				{Label: "1.0 at once, 100 in, 101 out", Steps: 1, Seqs: 1, Context: 150.5, Seconds: 0.01},
				{Label: "first token after 100", Steps: 1, Seqs: 1, Prompt: 100, Seconds: 0.03},
			}},
		{"vllm bench serve, 8 at once",
			`{"completed": 80, "duration": 20, "total_input_tokens": 8000, "total_output_tokens": 8080, "mean_tpot_ms": 20, "mean_ttft_ms": 300}`, Lengths{}, []Point{
				{Label: "8.0 at once, 100 in, 101 out", Steps: 1, Seqs: 8, Context: 8 * 150.5, Prompt: 8 * 100 / 101.0,
					Seconds: 0.02},
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			points, err := Read(file(t, c.text), c.lengths)
			require.NoError(t, err)
			require.Len(t, points, len(c.want))
			for i := range points {
				require.Equal(t, c.want[i].Label, points[i].Label)
				for k, v := range c.want[i].terms() {
					require.InDelta(t, v, points[i].terms()[k], 1e-9)
				}
				require.InDelta(t, c.want[i].Seconds, points[i].Seconds, 1e-12)
			}
		})
	}
}

// Ensure that an error about measurements says what is wrong. It must name the line or record of the file, if there is
// one.
func TestBadMeasurementsAreRefused(t *testing.T) {
	for _, c := range []struct{ name, text, wantErr string }{
		{"empty", "", "it is empty"},
		{"another JSON", `{"model": "x"}`, "record 1: neither llama-batched-bench"},
		{"cut short", `{"pp": 1`, "record 1: unexpected EOF"},
		{"no lengths", `{"avg_latency": 1}`, "add --batch-size, --input-len and --output-len"},
		{"zeros", `{"pp": 0, "tg": 1, "pl": 1}`, "want numbers above 0"},
		{"a column is missing", "batch,prompt,seconds\n1,1,1\n", `no column "context"`},
		{"no number", "batch,context,prompt,seconds\n1,1,0,1\n1,x,0,1\n", `line 3: column "context": "x"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Read(file(t, c.text), Lengths{})
			require.ErrorIs(t, err, ErrInput)
			require.ErrorContains(t, err, c.wantErr)
		})
	}
	for _, points := range [][]Point{nil, {{Steps: 1, Seconds: 1}}, {{Steps: 1, Seconds: -1}, {Steps: 1, Seconds: 1}},
		{{Steps: 1, Seconds: math.NaN()}, {Steps: 1, Seconds: 1}}} {
		_, err := Fit(points)
		require.ErrorIs(t, err, ErrInput)
	}
}

func TestACostFileTimesASetup(t *testing.T) {
	line := cost.Linear{Base: 6.1, Seq: 0.02, Context: 5e-5, Prompt: 0.03}
	c := fitOf(t, table(line, 0))
	measured := c.saved(t)
	require.Equal(t, c.Linear, measured.Linear)
	setup, err := cost.New("llama-3-8b", "h100-80gb", 1)
	require.NoError(t, err)
	m, err := setup.Timed(measured).Model(16)
	require.NoError(t, err)
	require.InDelta(t, 6.12e-3+5e-8*100, m.Seconds(cost.Work{Seqs: 1, Context: 100}), 1e-9)
	require.Contains(t, m.Describe(), "mine, fitted to 16 points")
	var b strings.Builder
	require.NoError(t, c.Write(&b))
	require.Contains(t, b.String(), "an iteration takes, in ms, 6.1 + 0.02 for each sequence")
}

// Ensure that iterations with the same work become one point. Otherwise many small batches would outweigh a few large
// ones.
func TestATraceIsMergedByWork(t *testing.T) {
	var b strings.Builder
	b.WriteString("batch,context,prompt,seconds\n")
	for i := range 300 {
		fmt.Fprintf(&b, "1,%d,0,0.002\n", 130+i%50)
		if i%30 == 0 {
			b.WriteString("8,100,0,0.006\n1,0,65,0.012\n1,0,80,0.014\n1,0,300,0.05\n1,1000,0,0.003\n")
		}
	}
	points, err := Read(file(t, b.String()), Lengths{})
	require.NoError(t, err)
	require.Len(t, points, 5)
	require.InDelta(t, 300, points[0].Steps, 0)
	require.InDelta(t, 0.6, points[0].Seconds, 1e-9)
	require.InDelta(t, 300*(130+49.0/2), points[0].Context, 1e-6)
	require.InDelta(t, 20, points[2].Steps, 0)
	require.InDelta(t, 10*(65+80), points[2].Prompt, 1e-9)
	require.Equal(t, "batch 1, context about 0 each, prompt about 72", points[2].Label)
	require.Equal(t, "batch 1, context about 1000 each, prompt about 0", points[4].Label)
	c, err := Fit(points)
	require.NoError(t, err)
	require.InEpsilon(t, 6, c.Linear.Base+8*c.Linear.Seq+800*c.Linear.Context, 0.01)
	require.Equal(t, 350, c.Fit.Measured)
}

// Ensure that the stated errors are the errors of single rows of a table, and not of means of rows. A table of at
// least minTrace rows is merged like the trace of a server; a shorter table is not.
func TestALineIsFoundInATableOfAnyLength(t *testing.T) {
	for _, c := range []struct {
		name string
		rows int
		says string
	}{
		{"below the length of a trace", 199, "fitted to 199 points, errors"},
		{"at the length of a trace", 250, "points merged of 250 measurements, errors"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, noise := range []float64{0, 0.2} {
				var b strings.Builder
				b.WriteString("batch,context,prompt,seconds\n")
				for i := range c.rows {
					seqs, context := float64(1+i/25), float64(100*(1+i%25))
					factor := 1 + noise*float64(i%2*2-1)
					fmt.Fprintf(&b, "%g,%g,0,%g\n", seqs, context, 1e-3*(2+0.3*seqs+0.0005*seqs*context)*factor)
				}
				fit := fitOf(t, b.String())
				require.Contains(t, fit.Fit.String(), c.says)
				if noise > 0 {
					require.Greater(t, fit.Fit.Median, 0.15)
					continue
				}
				require.InEpsilon(t, 2, fit.Linear.Base, 1e-4)
				require.InEpsilon(t, 0.3, fit.Linear.Seq, 1e-4)
				require.InEpsilon(t, 0.0005, fit.Linear.Context, 1e-4)
				require.Less(t, fit.Fit.Worst, 1e-4)
			}
		})
	}
}

func TestLongStepsAreNotForgotten(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var points []Point
	measured := 0.0
	for range 2000 {
		seqs := float64(1 + rng.IntN(16))
		seconds := 1e-3 * (2 + 0.4*seqs)
		if rng.IntN(10) == 0 {
			seconds *= 4
		}
		points = append(points, Point{Steps: 1, Seqs: seqs, Context: 100 * seqs, Seconds: seconds})
		measured += seconds
	}
	c, err := Fit(points)
	require.NoError(t, err)
	fitted := 0.0
	for _, r := range c.Residuals {
		fitted += 1e-3 * r.Fitted
	}
	require.InEpsilon(t, measured, fitted, 0.02)
}
