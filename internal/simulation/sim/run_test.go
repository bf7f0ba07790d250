package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/device"
	"llmmemory/internal/scheduling/reqtable"
	"llmmemory/internal/scheduling/serve"
	"llmmemory/internal/simulation/cost"
	"llmmemory/internal/simulation/workload"
)

type list []workload.Request

func (l *list) Next(r *workload.Request) error {
	if len(*l) == 0 {
		return io.EOF
	}
	*r = (*l)[0]
	*l = (*l)[1:]
	return nil
}

func paperCost(t require.TestingT) *cost.Model {
	setup, err := cost.Open("paper-opt-13b")
	require.NoError(t, err)
	m, err := setup.Model(16)
	require.NoError(t, err)
	return m
}

func poisson(t testing.TB, name string, rate, duration float64, count int, seed uint64) workload.Source {
	lengths, _, err := workload.Named(name)
	require.NoError(t, err)
	source, err := workload.Gamma(lengths, rate, 1, seed, duration, count)
	require.NoError(t, err)
	return source
}

// served runs the requests. If c has no cost model, served uses the paper's times.
func served(t require.TestingT, c Config, requests ...workload.Request) *Result {
	return ran(t, c, (*list)(&requests))
}

func ran(t require.TestingT, c Config, source workload.Source) *Result {
	if c.Cost == nil {
		c.Cost = paperCost(t)
	}
	r, err := Run(context.Background(), c, source)
	require.NoError(t, err)
	return r
}

// The constants are times computed by hand. A prompt of 100 tokens takes 22 + 0.3 + 14 ms. A decode takes 22 + 0.3
// ms, and 0.0007 ms for each token to which it attends.
const (
	first = 0.0363
	whole = first + 2*0.0223 + 0.0007e-3*(101+102)
)

func TestOneRequestTakesWhatTheModelSays(t *testing.T) {
	r := served(t, Config{Server: Server{System: "sosp"}}, workload.Request{Arrival: 5, Prompt: 100, Output: 3})
	require.InDelta(t, 5+whole, r.Seconds, 1e-12)
	require.InDelta(t, first, r.TTFT.Mean, 1e-12)
	require.InDelta(t, whole, r.EndToEnd.Mean, 1e-12)
	require.InDelta(t, whole/3, r.Normalized.Mean, 1e-12)
	require.InDelta(t, (whole-first)/2, r.TPOT.Mean, 1e-12)
	require.Equal(t, 3, r.Iterations)
	require.Equal(t, 3, r.Generated)
	require.Equal(t, 100, r.Prompted)
	require.Equal(t, 1, r.Answered)
	// The request has 100 to 102 tokens in 7 blocks. The memory has 983 × 16 slots.
	require.InDelta(t, (100+101+102)/3.0/15728, r.Window.Tokens, 1e-12)
	require.InDelta(t, (7*16-101)/15728.0, r.Window.Internal, 1e-12)
	require.InDelta(t, 1-7*16/15728.0, r.Window.External, 1e-12)
}

// Ensure that Cost.FirstToken, the time outside iterations, does not change the time between tokens. It must delay
// all tokens of an answer equally. With a limit on concurrent requests, it must also delay the next request.
func TestTheWayThroughAServerComesOnce(t *testing.T) {
	const way = 0.5
	r := served(t, Config{Server: Server{System: "sosp"}, Cost: paperCost(t).Within(1, way), MaxConcurrency: 1},
		workload.Request{Prompt: 100, Output: 3}, workload.Request{Prompt: 100, Output: 3})
	require.InDelta(t, first+way, r.TTFT.Max, 1e-12)
	require.InDelta(t, whole+way, r.EndToEnd.Max, 1e-12)
	require.InDelta(t, (whole-first)/2, r.TPOT.Mean, 1e-12)
	require.InDelta(t, whole+way+whole, r.Seconds, 1e-12)
}

// Ensure that the memory of Orca is divided as in the paper. With orca-max, each sequence reserves 2,048 slots. The
// sequences of this test use 103 slots each: 100 for the prompt and 3 for the output.
func TestOrcasMemoryIsDividedAsInThePaper(t *testing.T) {
	for system, never := range map[string]float64{"orca-max": 2048 - 103, "orca-pow2": 1, "orca-oracle": 0} {
		for _, n := range []float64{1, 2} {
			config := Config{Server: Server{System: system}, Cost: paperCost(t), Decoding: Decoding{Samples: int(n)}}
			r := served(t, config, workload.Request{Prompt: 100, Output: 3})
			require.InDelta(t, n*101/15728, r.Window.Tokens, 1e-12)
			require.InDelta(t, n*2/15728, r.Window.Reservation, 1e-12)
			require.InDelta(t, n*never/15728, r.Window.Internal, 1e-12, system)
		}
	}
}

func TestEqualConfigurationsGiveEqualResults(t *testing.T) {
	for _, system := range Systems() {
		t.Run(system, func(t *testing.T) {
			run := func(seed uint64) string {
				config := Config{Server: Server{System: system}, Cost: paperCost(t), From: 10, Until: 60}
				if system == "sosp" {
					config.Decoding = Decoding{Samples: 3, Beam: true, Replace: 0.1}
				}
				if system == "vllm-v1" {
					config.Decoding = Decoding{Drafts: 3, Accept: 0.6}
				}
				config.Seed = seed
				r := ran(t, config, poisson(t, "sharegpt", 1, 60, 0, 3))
				text, err := json.Marshal(r)
				require.NoError(t, err)
				return string(text)
			}
			require.Equal(t, run(1), run(1))
			if system == "sosp" || system == "vllm-v1" {
				require.NotEqual(t, run(1), run(2))
			}
		})
	}
}

// Ensure that several answers to a prompt count as one request in the statistics, in all systems.
func TestSamplesOfAPromptAreOneRequestToTheUser(t *testing.T) {
	for _, system := range []string{"sosp", "orca-oracle", "vllm-v0", "vllm-v1"} {
		r := served(t, Config{Server: Server{System: system},
			Decoding: Decoding{Samples: 4}}, workload.Request{Prompt: 64, Output: 10})
		require.Equal(t, 1, r.Answered, system)
		require.Equal(t, 40, r.Generated)
		require.InDelta(t, 1, r.Window.Requests, 1e-12, system)
		require.InDelta(t, 4, r.Window.Sequences, 1e-12)
		switch system {
		case "sosp":
			require.Equal(t, 64, r.Prompted)
			require.InDelta(t, 1-1/4.0, r.Window.Saving, 0.3)
		case "vllm-v1":
			require.Equal(t, 3*48, r.Hits, "whole blocks before the last token")
		case "vllm-v0":
			require.Equal(t, 4*64, r.Prompted)
			require.Zero(t, r.Window.Saving)
		}
	}
}

func TestASharedPrefixIsComputedOnce(t *testing.T) {
	source := func() *list {
		return &list{{Prompt: 100, Output: 2, Shared: 80}, {Arrival: 1, Prompt: 90, Output: 2, Shared: 80}}
	}
	r := ran(t, Config{Server: Server{System: "sosp", Prefix: 80}}, source())
	require.Equal(t, 160, r.Hits)
	require.Equal(t, 30, r.Prompted)
	r = ran(t, Config{Server: Server{System: "vllm-v1"}}, source())
	require.Equal(t, 80, r.Hits)
	require.Equal(t, 110, r.Prompted)
}

// Ensure that draft tokens are always accepted if they are always right. An answer of 9 tokens then takes the
// prompt's iteration and 2 decodes of 4 tokens.
func TestRightDraftsAreAlwaysUsed(t *testing.T) {
	run := func(accept float64) *Result {
		return served(t, Config{Decoding: Decoding{Drafts: 3, Accept: accept, DraftTime: 0.001}},
			workload.Request{Prompt: 10, Output: 9})
	}
	require.Equal(t, 3, run(1).Iterations)
	require.Equal(t, 9, run(0).Iterations)
	// The run takes the time of a prompt of 10 tokens, and of two decodes with 3 draft tokens each, which
	// attend to 11 and to 15 tokens. Drafting takes a millisecond for each decode.
	require.InDelta(t, 3*0.0223+0.14e-3*(10+3+3)+0.0007e-3*(11+15)+2*0.001, run(1).Seconds, 1e-12)
}

func TestARunCanBeStopped(t *testing.T) {
	config := Config{Server: Server{System: "orca-max"}, Cost: paperCost(t), From: 50, Until: 100, Stop: true}
	r := ran(t, config, poisson(t, "sharegpt", 2, 0, 0, 1))
	require.InDelta(t, 100, r.Seconds, 0.1)
	require.Less(t, r.Answered, r.Arrived)
	require.InDelta(t, 7, r.Window.Requests, 1e-9, "the paper's Orca (Max) has 7 requests (Fig. 13)")
	require.InDelta(t, 1-7*128/983.0, r.Window.External, 1e-9)

	// A cancelled context ends a run without Stop, even if all requests are refused. With sosp here, each prompt is too
	// long for an iteration.
	for system, tokens := range map[string]int{"orca-max": 0, "sosp": 1} {
		ctx, cancel := context.WithCancel(context.Background())
		calls := 0
		r, err := Run(ctx, Config{Server: Server{System: system, MaxNumBatchedTokens: tokens}, Cost: paperCost(t),
			Progress: func(float64, int, int) {
				if calls++; calls == 1000 {
					cancel()
				}
			}}, poisson(t, "alpaca", 2, 0, 0, 1))
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, system == "orca-max", r.Answered > 0)
		require.Equal(t, system == "sosp", r.Refused == r.Arrived)
	}
}

func TestImpossibleConfigurationsAreRefused(t *testing.T) {
	for _, tc := range []struct {
		name, wantErr string
		config        Config
	}{
		{"an unknown system", `no system "orca": want fastertransformer, orca-max`, Config{Server: Server{System: "orca"}}},
		{"beams in a system without them", "vllm-v1 runs no beam search", Config{Server: Server{System: "vllm-v1"},
			Decoding: Decoding{Beam: true, Samples: 2}}},
		{"drafts in a system without them", "sosp verifies no drafts",
			Config{Server: Server{System: "sosp"}, Decoding: Decoding{Drafts: 2}}},
		{"a share of replaced beams that is not a number", "want 0 to 1",
			Config{Server: Server{System: "sosp"}, Decoding: Decoding{Replace: math.NaN()}}},
		{"a negative end", "until -1 s", Config{Server: Server{System: "sosp"}, Stop: true, Until: -1}},
		{"a length that is no multiple of the block size", "sequences of at most 2000 tokens",
			Config{Server: Server{System: "orca-max", MaxModelLen: 2000, BlockSize: 24}}},
		{"a negative number of answers", "-2 answers",
			Config{Server: Server{System: "sosp"}, Decoding: Decoding{Samples: -2}}},
		{"too many answers", "1025 answers to a prompt: want 1 to 1024", Config{Server: Server{System: "vllm-v1"},
			Decoding: Decoding{Samples: 1025}}},
		{"too many drafts", "1025 drafts: want 0 to 1024", Config{Server: Server{System: "vllm-v1"},
			Decoding: Decoding{Drafts: 1025}}},
		{"a draft time that is not a number", "drafts take NaN s", Config{Server: Server{System: "vllm-v1"},
			Decoding: Decoding{Drafts: 2, DraftTime: math.NaN()}}},
		{"an endless draft time", "drafts take +Inf s", Config{Server: Server{System: "vllm-v1"},
			Decoding: Decoding{Drafts: 2, DraftTime: math.Inf(1)}}},
		{"too many GPU blocks", "33554433 blocks and 1638 on the CPU: want at most",
			Config{Server: Server{System: "sosp", NumGPUBlocks: 1<<25 + 1}}},
		{"too many CPU blocks", "983 blocks and 33554433 on the CPU: want at most",
			Config{Server: Server{System: "vllm-v0", NumCPUBlocks: 1<<25 + 1}}},
	} {
		tc.config.Cost = paperCost(t)
		_, err := Run(context.Background(), tc.config, &list{})
		require.ErrorIs(t, err, ErrConfig, tc.name)
		require.ErrorContains(t, err, tc.wantErr, tc.name)
	}
	bad := errors.New("line 7")
	_, err := Run(context.Background(), Config{Server: Server{System: "sosp"}, Cost: paperCost(t)}, failing{bad})
	require.ErrorIs(t, err, bad)
}

type failing struct{ err error }

func (f failing) Next(*workload.Request) error { return f.err }

// Ensure that requests are counted if they are too long. Result.Refusal must say why the first of them was refused.
func TestRequestsThatAreTooLongAreCounted(t *testing.T) {
	r := served(t, Config{Server: Server{System: "orca-oracle"}}, workload.Request{Prompt: 2000, Output: 100},
		workload.Request{Prompt: 10, Output: 10})
	require.Equal(t, 1, r.Refused)
	require.Equal(t, 1, r.Answered)
	require.Contains(t, r.Refusal, "no sequence has more than 2048")
}

// Ensure that a run ends with an error if its requests only preempt each other, but not if a single prompt
// takes many iterations.
func TestRequestsThatOnlyPreemptEachOtherEndARun(t *testing.T) {
	config := Config{Server: Server{System: "vllm-v0", Chunked: true, MaxNumBatchedTokens: 1, MaxModelLen: 640,
		NumGPUBlocks: 40}, Cost: paperCost(t)}
	_, err := Run(context.Background(), config, &list{{Prompt: 630, Output: 10}, {Prompt: 630, Output: 10}})
	require.ErrorIs(t, err, ErrStuck)
	require.ErrorContains(t, err, "2 prompts take memory from each other forever in vllm-v0")
	config.Server.NumGPUBlocks = 41
	r := served(t, config, workload.Request{Prompt: 630, Output: 10}, workload.Request{Prompt: 630, Output: 10})
	require.Equal(t, 2, r.Answered)
	require.Equal(t, 2*(630+9), r.Iterations)
}

func Example() {
	lengths, _, _ := workload.Named("sharegpt")
	source, _ := workload.Gamma(lengths, 2, 1, 1, 100, 0)
	setup, _ := cost.Open("paper-opt-13b")
	model, _ := setup.Model(16)
	r, err := Run(context.Background(), Config{Server: Server{System: "orca-max"}, Cost: model, Until: 100}, source)
	fmt.Println(r.Arrived, r.Answered, err)
	// Output: 216 216 <nil>
}

func TestAnIterationCostsWhatIsInIt(t *testing.T) {
	r, err := newRun(Config{Server: Server{System: "sosp"}, Cost: paperCost(t)}, &list{})
	require.NoError(t, err)
	for range 6 {
		r.requests.insert(&workload.Request{Prompt: 100, Output: 100}, 3, reqtable.None)
	}
	r.requests.setResident(&r.requests.all[5], true)
	r.reforks.Copies = make([]device.Pair, 2)
	r.iter = serve.Iteration{
		Prefills: []serve.Prefill{
			{ID: 0, Tokens: 30, Seqs: 3},
			{ID: 1, Start: 10, Tokens: 20, Cached: 4, Seqs: 3, Last: true},
		},
		Decodes:   []serve.Decode{{ID: 2, Context: 50, Seqs: 3}, {ID: 3, Context: 20, Seqs: 1, Drafts: 2}},
		Preempted: []serve.Preemption{{ID: 4}, {ID: 5, Swapped: true}},
		SwapOut:   make([]device.Pair, 2), SwapIn: make([]device.Pair, 3), Copies: make([]device.Pair, 4),
	}
	sum := func(first, last int64) (n int64) {
		for i := first; i <= last; i++ {
			n += i
		}
		return n
	}
	require.Equal(t, cost.Work{
		Seqs: 3 + 3 + 1, Context: 3*50 + 20, Prompt: 30 + 16 + 2,
		PromptContext: sum(1, 30) + sum(15, 30) + sum(21, 22),
		SwapBlocks:    5, Swaps: 5, CopyBlocks: 6,
	}, r.work())
	require.Equal(t, 5, r.r.SwapBlocks)
	require.Equal(t, 6, r.r.CopyBlocks)
	require.Equal(t, 4, r.r.Hits)
	require.Equal(t, 1, r.r.Recomputed)
	require.Equal(t, 1, r.r.Swapped)
	require.False(t, r.requests.all[5].resident)
	require.Equal(t, 4, r.requests.requests)
	require.Zero(t, r.work().CopyBlocks-4, "copies of beams are made once")
}

func TestAnswersToAPromptDifferFromTheirFirstToken(t *testing.T) {
	r := &workload.Request{Prompt: 5, Output: 4}
	a, b := tokens(nil, r, 3, 0), tokens(nil, r, 3, 1)
	require.Equal(t, a[:5], b[:5])
	for i := 5; i < 9; i++ {
		require.NotEqual(t, a[i], b[i])
	}
}

func TestBeamsAreReplacedAsOftenAsAskedFor(t *testing.T) {
	run := func(replace float64) *Result {
		return served(t, Config{Server: Server{System: "sosp"}, Decoding: Decoding{Samples: 4, Beam: true, Replace: replace}},
			workload.Request{Prompt: 100, Output: 200})
	}
	never, seldom, often := run(0), run(0.01), run(0.5)
	require.Equal(t, 3, never.CopyBlocks, "of the prompt's last block")
	require.Greater(t, seldom.CopyBlocks, never.CopyBlocks)
	require.Greater(t, often.CopyBlocks, 5*seldom.CopyBlocks)
	require.Greater(t, often.Window.Saving, seldom.Window.Saving)
}

func TestAveragesAreOfTheWindow(t *testing.T) {
	run := func(start, end float64) int {
		r := ran(t, Config{Server: Server{System: "sosp"}, From: start,
			Until: end}, poisson(t, "sharegpt", 1, 100, 0, 1))
		require.Equal(t, r.Arrived, r.Answered)
		return r.Window.Iterations
	}
	all := run(0, 0)
	require.Equal(t, all, run(0, 50)+run(50, 0))
	require.Equal(t, all, run(0, 50)+run(50, 70)+run(70, 0))
}

func TestAServersFieldsReachItsSystem(t *testing.T) {
	run := func(s Server, n int, r workload.Request) *Result {
		return served(t, Config{Server: s}, slices.Repeat([]workload.Request{r}, n)...)
	}
	crowd := workload.Request{Prompt: 100, Output: 100}
	for _, system := range []string{"sosp", "vllm-v0"} {
		r := run(Server{System: system, NumGPUBlocks: 100}, 30, crowd)
		require.True(t, r.Recomputed > 0 && r.Swapped == 0, "%+v", r)
		r = run(Server{System: system, NumGPUBlocks: 100, Swap: true}, 30, crowd)
		require.True(t, r.Recomputed == 0 && r.Swapped > 0, "%+v", r)
		require.Positive(t, r.SwapBlocks)
	}
	shared := workload.Request{Prompt: 100, Output: 10, Shared: 96}
	require.Positive(t, run(Server{System: "vllm-v1", MaxNumSeqs: 1}, 2, shared).Hits)
	require.Zero(t, run(Server{System: "vllm-v1", MaxNumSeqs: 1, NoCaching: true}, 2, shared).Hits)
	require.Zero(t, run(Server{System: "vllm-v0", MaxNumSeqs: 1}, 2, shared).Hits)
	require.Positive(t, run(Server{System: "vllm-v0", MaxNumSeqs: 1, Caching: true}, 2, shared).Hits)

	long := workload.Request{Prompt: 600, Output: 10}
	require.Equal(t, 1, run(Server{System: "vllm-v0", MaxNumBatchedTokens: 512}, 1, long).Dropped)
	require.Equal(t, 1, run(Server{System: "vllm-v0", MaxNumBatchedTokens: 512, Chunked: true}, 1, long).Answered)
	require.Equal(t, 1, run(Server{System: "fastertransformer"}, 1, workload.Request{Prompt: 2000, Output: 41}).Refused)
	require.Equal(t, 1, run(Server{System: "fastertransformer"}, 1, workload.Request{Prompt: 2000, Output: 40}).Answered)
	for _, system := range Systems() {
		s, err := NewScheduler(Server{System: system}, 0)
		require.NoError(t, err)
		want := 983
		if system == "fastertransformer" {
			want = 5
		}
		require.Equal(t, want, s.Usage().Blocks, system)
	}
}
