package sim

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/simulation/cost"
	"llmmemory/internal/simulation/workload"
)

type account struct {
	Result *Result
	Left   []Departure
	First  []int
	At     []float64
}

func runOf(config Config, source workload.Source) (account, error) {
	var a account
	config.Departed = func(d Departure) { a.Left = append(a.Left, d) }
	config.First = func(index int, now float64) { a.First, a.At = append(a.First, index), append(a.At, now) }
	var err error
	a.Result, err = Run(context.Background(), config, source)
	return a, err
}

// variedCost returns a cost model in which iterations with the same work take different times.
func variedCost(t require.TestingT) *cost.Model {
	setup, err := cost.New("opt-13b", "a100-40gb", 1)
	require.NoError(t, err)
	m, err := setup.Timed(cost.Measured{
		Linear: cost.Linear{Base: 10, Seq: 0.1, Prompt: 0.02},
		Spread: &cost.Spread{Decodes: []float64{0.5, 1.5}, Prompts: []float64{0.8, 0.9, 1.3}},
	}).Model(16)
	require.NoError(t, err)
	return m
}

// Ensure that a run with Ample gives the results of a run without it, or returns ErrAmple because memory is short.
func TestCountingOnMemoryChangesNothing(t *testing.T) {
	same, short := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		seqs := rapid.IntRange(1, 12).Draw(t, "seqs")
		config := Config{
			Server: Server{
				System: "vllm-v1", BlockSize: rapid.SampledFrom([]int{1, 4, 16}).Draw(t, "block"), MaxModelLen: 64,
				NumGPUBlocks:        rapid.IntRange(4, 300).Draw(t, "blocks"),
				MaxNumBatchedTokens: seqs + rapid.IntRange(0, 60).Draw(t, "tokens"), MaxNumSeqs: seqs,
				Watermark: rapid.SampledFrom([]float64{-1, 0.05}).Draw(t, "watermark"),
				NoCaching: rapid.Bool().Draw(t, "no caching"),
			},
			Cost: rapid.SampledFrom([]*cost.Model{paperCost(t), variedCost(t)}).Draw(t, "cost"), From: 0.5, Until: 3,
			Goodput: Goodput{TTFT: 0.1}, MaxConcurrency: rapid.SampledFrom([]int{0, 0, 5}).Draw(t, "at once"),
		}
		var source list
		at := 0.0
		for range rapid.IntRange(1, 40).Draw(t, "requests") {
			at += rapid.Float64Range(0, 0.1).Draw(t, "gap")
			source = append(source, workload.Request{
				Arrival: at, Prompt: rapid.IntRange(1, 40).Draw(t, "prompt"), Output: rapid.IntRange(1, 24).Draw(t, "output"),
			})
		}
		counting := config
		counting.Ample = true
		again := append(list(nil), source...)
		got, err := runOf(counting, &again)
		if err != nil {
			require.ErrorIs(t, err, ErrAmple)
			short++
			return
		}
		want, err := runOf(config, &source)
		require.NoError(t, err)
		require.Zero(t, want.Result.Recomputed)
		require.Equal(t, want, got)
		same++
	})
	require.Positive(t, same)
	require.Positive(t, short)
}

// Ensure that a run of ShareGPT has the same results with Ample as without it. The rate is high enough to fill the
// batch.
func TestCountingOnMemoryChangesNothingOfShareGPT(t *testing.T) {
	config := Config{Server: Server{NumGPUBlocks: 20_000}, Cost: paperCost(t)}
	want, err := runOf(config, poisson(t, "sharegpt", 12, 0, 1500, 1))
	require.NoError(t, err)
	require.Greater(t, want.Result.Window.Requests, 150.0)
	config.Ample = true
	got, err := runOf(config, poisson(t, "sharegpt", 12, 0, 1500, 1))
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestSumsAreThoseOfTheRequests(t *testing.T) {
	r, err := newRun(Config{Server: Server{MaxNumBatchedTokens: 300}, Cost: paperCost(t), Ample: true},
		poisson(t, "sharegpt", 1, 0, 100, 1))
	require.NoError(t, err)
	drive(t, r, r.iterateAmple, func() { require.NoError(t, r.ample.check()) })
	blocks, tokens := r.ample.usage()
	require.Zero(t, blocks)
	require.Zero(t, tokens)
}

func TestWhatCannotCountOnMemoryIsSaid(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*Config)
		request workload.Request
	}{
		{"another system", func(c *Config) { c.Server.System = "sosp" }, workload.Request{Prompt: 5, Output: 5}},
		{"several answers", func(c *Config) { c.Decoding.Samples = 2 }, workload.Request{Prompt: 5, Output: 5}},
		{"drafts", func(c *Config) { c.Decoding.Drafts = 2 }, workload.Request{Prompt: 5, Output: 5}},
		{"steps shorter than a batch", func(c *Config) { c.Server.MaxNumBatchedTokens = 100 },
			workload.Request{Prompt: 5, Output: 5}},
		{"a shared prefix", func(c *Config) {}, workload.Request{Prompt: 50, Output: 5, Shared: 20}},
		{"hashes", func(c *Config) {}, workload.Request{Prompt: 512, Output: 5, Hashes: []int64{1}}},
		{"too long for a sequence", func(c *Config) {}, workload.Request{Prompt: 2040, Output: 9}},
		{"too long for the pool", func(c *Config) { c.Server.NumGPUBlocks = 2 }, workload.Request{Prompt: 30, Output: 9}},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := Config{Cost: paperCost(t), Ample: true}
			c.change(&config)
			_, err := Run(context.Background(), config, &list{c.request})
			require.ErrorIs(t, err, ErrAmple)
		})
	}
	shared := Config{Server: Server{NoCaching: true}, Cost: paperCost(t), Ample: true}
	_, err := Run(context.Background(), shared, &list{{Prompt: 50, Output: 5, Shared: 20}})
	require.NoError(t, err, "without prefix caching sharing changes nothing")
}

// Ensure that a run with Ample returns ErrAmple, too, if a request would have to wait because of the watermark.
func TestARequestThatWouldWaitForMemoryEndsARunThatCountsOnIt(t *testing.T) {
	for _, c := range []struct {
		name      string
		blocks    int
		watermark float64
		short     bool
	}{
		{"memory for both prompts", 8, -1, false},
		{"memory for one", 7, -1, true},
		{"memory for both, if there were no watermark", 9, 0.3, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := Config{Server: Server{NumGPUBlocks: c.blocks, Watermark: c.watermark}, Cost: paperCost(t), Ample: true}
			_, err := Run(context.Background(), config, &list{{Prompt: 64, Output: 1}, {Prompt: 64, Output: 1}})
			if c.short {
				require.ErrorIs(t, err, ErrAmple)
				return
			}
			require.NoError(t, err)
		})
	}
}
