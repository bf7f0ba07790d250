package cost_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/simulation/cost"
)

// A decodeTimes describes the times of iterations that only decode, as someone measured them or fitted them. An
// iteration takes base, plus seq for each sequence, plus context for each token of context, in ms. The times apply to
// iterations with the numbers of sequences in seqs. The roofline's time divided by the described time must be between
// low and high.
type decodeTimes struct {
	base, seq, context float64
	seqs               []int
	low, high          float64
}

// A promptTimes describes the times of iterations that compute a prompt of n tokens. An iteration takes
// base + token·n + square·n² ms.
type promptTimes struct {
	base, token, square float64 // square: for each token²
	low, high           float64
}

// known has the times with which the roofline is compared. The bounds are the ratios that the test computed, rounded
// outwards to the next 0.05.
//
// The values of DistServe are from its public profile data. That data also has times of vLLM for OPT-13B on several
// GPUs. known omits them, because they become longer with more GPUs, although each GPU then has less work.
var known = []struct {
	name       string
	model, gpu string
	workers    int
	decodes    []decodeTimes
	prompts    promptTimes
}{
	{"the paper's calibrated line", "opt-13b", "a100-40gb", 1, []decodeTimes{
		{22, 0.30, 7.0e-4, []int{1, 7, 13, 30}, 0.90, 1.15},
		{22, 0.30, 7.0e-4, []int{75, 130}, 0.65, 0.90}, // its share of a sequence is fitted to whole runs
	}, promptTimes{22, 0.14, 0, 0.70, 1.05}},
	{"FasterTransformer's logs", "opt-13b", "a100-40gb", 1, []decodeTimes{
		{21.3, 0, 5.3e-4, []int{1, 5, 14, 28}, 1.15, 1.40}, // faster than vLLM at so few
	}, promptTimes{21.3, 0.10, 0, 0.85, 1.45}},
	{"vLLM in DistServe", "opt-13b", "a100-80gb", 1, []decodeTimes{
		{23.475, 0.0607, 5.929e-4, []int{1, 8, 32, 64}, 0.85, 1.05},
		{20.206, 0.1200, 4.908e-4, []int{128}, 1.05, 1.15},
	}, promptTimes{22.052, 0.1405, 8.08e-6, 0.65, 0.95}},
	{"vLLM in DistServe", "opt-66b", "a100-80gb", 4, []decodeTimes{
		{39.582, 0.1358, 6.946e-4, []int{1, 8, 32, 64}, 0.70, 0.85},
	}, promptTimes{42.965, 0.2129, 4.60e-5, 0.55, 0.75}},
	{"vLLM in DistServe", "opt-66b", "a100-80gb", 8, []decodeTimes{
		{31.176, 0.0680, 2.756e-4, []int{1, 8, 32, 64}, 0.70, 0.90},
	}, promptTimes{38.931, 0.1574, 4.53e-6, 0.45, 0.65}},
	{"DistServe's engine", "opt-13b", "a100-80gb", 1, []decodeTimes{
		{19.935, 0.0385, 6.269e-4, []int{1, 8, 32, 64}, 1.05, 1.30},
	}, promptTimes{18.103, 0.1019, 7.12e-6, 0.85, 1.25}},
	{"DistServe's engine", "opt-66b", "a100-80gb", 4, []decodeTimes{
		{30.760, 0.0633, 4.519e-4, []int{1, 8, 32, 64}, 1.00, 1.15},
	}, promptTimes{29.442, 0.1514, 8.32e-6, 0.80, 1.15}},
	{"DistServe's engine", "opt-66b", "a100-80gb", 8, []decodeTimes{
		{23.155, 0.0480, 2.269e-4, []int{1, 8, 32, 64}, 0.95, 1.20},
	}, promptTimes{25.491, 0.1066, 3.39e-6, 0.70, 1.00}},
}

// Ensure that the times computed with DefaultEngine are near all measurements of OPT-13B and OPT-66B
// (simulation/PAPER.md §1, §3).
func TestRooflineNearMeasurements(t *testing.T) {
	for _, k := range known {
		setup, err := cost.New(k.model, k.gpu, k.workers)
		require.NoError(t, err)
		m, err := setup.Model(16)
		require.NoError(t, err)

		for _, d := range k.decodes {
			for _, seqs := range d.seqs {
				for _, each := range []int{50, 128, 512} {
					context := seqs * each
					want := d.base + d.seq*float64(seqs) + d.context*float64(context)
					got := 1e3 * m.Seconds(cost.Work{Seqs: seqs, Context: context})
					require.InDelta(t, (d.low+d.high)/2, got/want, (d.high-d.low)/2,
						"%s of %s on %d x %s: %d sequences of %d", k.name, k.model, k.workers, k.gpu, seqs, each)
				}
			}
		}
		for _, n := range []int{64, 256, 1024, 2048} {
			p := k.prompts
			want := p.base + p.token*float64(n) + p.square*float64(n*n)
			got := 1e3 * m.Seconds(cost.Work{Seqs: 1, Prompt: n, PromptContext: wholePrompt(n)})
			require.InDelta(t, (p.low+p.high)/2, got/want, (p.high-p.low)/2,
				"%s of %s on %d x %s: a prompt of %d", k.name, k.model, k.workers, k.gpu, n)
		}
	}
}

func wholePrompt(n int) int64 { return int64(n) * int64(n+1) / 2 }
