package cost

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/testkit/level"
)

func init() { level.CollectLess() }

func open(t testing.TB, name string, block int) *Model { return setup(t, name).model(t, block) }

// Ensure that the calibrated lines have the coefficients in simulation/PAPER.md §3.
func TestTheCalibratedLinesAreThePapers(t *testing.T) {
	w := Work{Seqs: 30, Context: 15_000, Prompt: 161, PromptContext: 13_041}
	require.InDelta(t, 22+0.30*30+0.00070*15_000+0.14*161, 1e3*open(t, "paper-opt-13b", 16).Seconds(w), 1e-9)
	require.InDelta(t, 21.3+5.3e-4*15_000+0.10*161, 1e3*open(t, "fastertransformer-opt-13b", 16).Seconds(w), 1e-9)
}

// tiny is a setup with round numbers. The model has 2 layers, 8 heads of 8 elements and 4 KV heads. The GPU moves 1
// GB/s and computes 1 TFLOPS. The engine reaches these peak rates and has no overhead.
func tiny(workers int) Setup {
	return Setup{
		Name: "tiny",
		LLM: LLM{
			Name: "tiny", Layers: 2, Hidden: 100, Heads: 8, KVHeads: 4, HeadSize: 8, FFN: 256, Vocabulary: 1000,
			Parameters: 345_000, ParameterBytes: 2, KVBytes: 2, MaxLength: 100,
		},
		GPU: GPU{Name: "slow", MemoryBytes: 1 << 30, Bandwidth: 1, FP16: 1, HostLink: 0.5, WorkerLink: 0.1,
			LinkLatency: 10},
		Workers: workers,
		Engine:  Engine{Weights: 1, Compute: 1, Attention: 1, PromptAttention: 1, HostLink: 1, WorkerLink: 1},
		Memory:  DefaultMemory,
	}
}

func (s Setup) model(t testing.TB, block int) *Model {
	m, err := s.Model(block)
	require.NoError(t, err)
	return m
}

// These are numbers of parameters. The hidden size of tiny is 100. A layer of tiny has 2·100·64 for queries and
// output, 2·100·32 for keys and values, and 2·100·256 in the feed-forward part. The head has 1000·100.
const (
	tinyLayer = 2*100*64 + 2*100*32 + 2*100*256
	tinyHead  = 100_000
)

func TestEachPartOfARooflineIsCountedByHand(t *testing.T) {
	const ns, ps = 1e-9, 1e-12 // of a byte, of an operation
	m := tiny(1).model(t, 16)
	weights := ns * 2 * (2*tinyLayer + tinyHead)
	one := m.Seconds(Work{Seqs: 1})
	require.InEpsilon(t, weights, one, 1e-12, "few tokens wait for the weights")

	// Keys and values of a token take 2 (key, value) × 2 layers × 4 heads × 8 elements × 2 bytes.
	require.InDelta(t, ns*1000*256, m.Seconds(Work{Seqs: 1, Context: 1000})-one, 1e-15)

	slow := tiny(1)
	slow.GPU.FP16 = 1e-3 // 512 operations then take longer than 256 bytes
	require.InEpsilon(t, 1e-9*512, slow.model(t, 16).context, 1e-12)

	// Many tokens wait for the multiplications; only some make logits.
	require.InEpsilon(t, ps*2*(2*tinyLayer+tinyHead)*1e6, m.Seconds(Work{Seqs: 1e6}), 1e-9)
	linear := ps * (2*2*tinyLayer*(1e6+1) + 2*tinyHead)
	require.InEpsilon(t, linear+ns*2*256*1e6, m.Seconds(Work{Seqs: 1, Prompt: 1e6}), 1e-9,
		"keys and values are written and read")

	// A token that attends to another takes 2 layers × 8 heads × 8 elements × 2 (multiply, add) × 2 (key,
	// value) operations.
	require.InEpsilon(t, linear+ps*512*1e12, m.Seconds(Work{Seqs: 1, Prompt: 1e6, PromptContext: 1e12}), 1e-9)
}

// Ensure that an iteration reads the head's matrix even if the model uses the same matrix as embedding (LLM.Tied).
// Ensure that it reads all three feed-forward matrices of a gated model.
func TestTiedHeadsAndThirdMatricesAreRead(t *testing.T) {
	s := tiny(1)
	s.LLM.Tied, s.LLM.Parameters = true, 245_000
	require.Equal(t, tiny(1).model(t, 16).weights, s.model(t, 16).weights)
	s = tiny(1)
	s.LLM.Gated, s.LLM.Parameters = true, 2*(tinyLayer+25_600)+2*tinyHead
	require.InEpsilon(t, 2e-9*(2*(tinyLayer+25_600)+tinyHead), s.model(t, 16).weights, 1e-12)
}

func TestEveryEfficiencyChangesItsOwnPart(t *testing.T) {
	var (
		one    = Work{Seqs: 1}
		seqs   = Work{Seqs: 1e6}
		prompt = Work{Prompt: 1, PromptContext: 1e12}
	)
	for name, c := range map[string]struct {
		set  func(*Engine)
		work Work
		want func(before float64) float64
	}{
		"weights": {func(e *Engine) { e.Weights = 0.5 }, one, func(s float64) float64 { return 2 * s }},
		"compute": {func(e *Engine) { e.Compute = 0.5 }, seqs, func(s float64) float64 { return 2 * s }},
		"attention": {func(e *Engine) { e.Attention = 0.5 }, Work{Seqs: 1, Context: 1e9},
			func(s float64) float64 { return s + 1e9*256e-9 }},
		"prompt attention": {func(e *Engine) { e.PromptAttention = 0.5 }, prompt, func(s float64) float64 { return s + 512 }},
		"base":             {func(e *Engine) { e.Base = 1 }, one, func(s float64) float64 { return s + 1e-3 }},
		"layer":            {func(e *Engine) { e.Layer = 1 }, one, func(s float64) float64 { return s + 2e-3 }},
		"sequence":         {func(e *Engine) { e.Seq = 1 }, seqs, func(s float64) float64 { return s + 1e3 }},
		"activations": {func(e *Engine) { e.Activations = 1 }, seqs,
			func(s float64) float64 { return s + 1e6*2*(8*100+2*256)*2e-9 }},
		"no prompt": {func(e *Engine) { e.PromptLayer = 1 }, one,
			func(s float64) float64 { return s }},
		"rounded": {func(e *Engine) { e.Rounded, e.PromptLayer = 1, 500*(2e-9*(2*tinyLayer+tinyHead)+512) }, prompt,
			func(s float64) float64 { return math.Pow(2, 0.25) * s }},
		"launches":        {func(e *Engine) { e.PromptLayer = 1e6 }, prompt, func(float64) float64 { return 2e3 }},
		"hidden launches": {func(e *Engine) { e.PromptLayer = 1 }, prompt, func(s float64) float64 { return s }},
		"host link": {func(e *Engine) { e.HostLink = 0.5 }, Work{SwapBlocks: 1},
			func(s float64) float64 { return 2 * s }},
		"copy": {func(e *Engine) { e.Copy = 1 }, Work{Swaps: 1}, func(float64) float64 { return 4e-6 }},
	} {
		s := tiny(1)
		before := s.model(t, 16).Seconds(c.work)
		c.set(&s.Engine)
		require.InEpsilon(t, c.want(before), s.model(t, 16).Seconds(c.work), 1e-9, name)
	}
}

// Ensure that a swapped block takes, for each layer, one copy of keys and one of values over the link to the host.
func TestTransfersTakeWhatTheirBytesTake(t *testing.T) {
	s := tiny(1)
	s.Engine.Copy = 10
	m := s.model(t, 16)
	require.InEpsilon(t, 3*16*256/0.5e9, m.Seconds(Work{SwapBlocks: 3}), 1e-12)
	require.InEpsilon(t, 7*4*10e-6, m.Seconds(Work{Swaps: 7}), 1e-12)
	require.InEpsilon(t, 5*2*16*256/1e9, m.Seconds(Work{CopyBlocks: 5}), 1e-12)
	require.InEpsilon(t, 2*m.Seconds(Work{SwapBlocks: 3, CopyBlocks: 5}),
		s.model(t, 32).Seconds(Work{SwapBlocks: 3, CopyBlocks: 5}), 1e-12)

	both := Work{Seqs: 1, SwapBlocks: 3, Swaps: 1, CopyBlocks: 1}
	alone := both
	alone.Seqs = 0
	require.InEpsilon(t, m.Seconds(alone)+m.Seconds(Work{Seqs: 1}), m.Seconds(both), 1e-12)
	require.Zero(t, m.Seconds(Work{}), "the model does not run for nothing")
	s.Linear = &Linear{Base: 22}
	require.InEpsilon(t, m.Seconds(alone), s.model(t, 16).Seconds(alone), 1e-12, "a calibrated line moves blocks alike")
}

// Ensure that each layer has two all-reduces for each token.
func TestWorkersShareWeightsHeadsAndBlocks(t *testing.T) {
	alone, two := tiny(1).model(t, 16), tiny(2).model(t, 16)
	latency := 2 * 2 * 10e-6
	token := 2 * 2 * 100 * 2 * 1.0 / 0.1e9 // in each of 2 layers twice 100 elements of 2 bytes, in a ring of 2 workers
	require.InEpsilon(t, alone.Seconds(Work{Seqs: 1})/2+latency+token, two.Seconds(Work{Seqs: 1}), 1e-12)
	require.InEpsilon(t, alone.context/2, two.context, 1e-12)
	require.InEpsilon(t, alone.promptPair/2, two.promptPair, 1e-12)
	require.InEpsilon(t, alone.swapBlock/2, two.swapBlock, 1e-12)
	require.InEpsilon(t, alone.copyBlock/2, two.copyBlock, 1e-12)
	require.InEpsilon(t, token, two.state, 1e-12)
	require.InEpsilon(t, token*1.5, tiny(4).model(t, 16).state, 1e-12, "3/4 instead of 1/2")
	s := tiny(2)
	s.Engine.WorkerLink = 0.5
	require.InEpsilon(t, 2*token, s.model(t, 16).state, 1e-12)
	parallel := tiny(2)
	parallel.LLM.Parallel = true
	require.InEpsilon(t, alone.Seconds(Work{Seqs: 1})/2+(latency+token)/2, parallel.model(t, 16).Seconds(Work{Seqs: 1}),
		1e-12, "one all-reduce in a layer")
}

// Ensure that workers without peer access share the link to the host. Each of two workers has its full rate, and each
// of four workers has half of this rate.
func TestWorkersWithoutPeerAccessShareTheirLink(t *testing.T) {
	state := func(workers int, throughHost bool) float64 {
		s := tiny(workers)
		s.GPU.ThroughHost = throughHost
		return s.model(t, 16).state
	}
	require.InEpsilon(t, state(2, false), state(2, true), 1e-12)
	require.InEpsilon(t, 2*state(4, false), state(4, true), 1e-12)
}

func TestMultiprocessorsLimitHowFastWeightsAreRead(t *testing.T) {
	weights := func(processors, rate float64) float64 {
		s := tiny(1)
		s.GPU.Bandwidth, s.Engine.Weights = 100, 1
		s.GPU.Processors, s.Engine.Processor = processors, rate
		return s.model(t, 16).weights
	}
	require.InEpsilon(t, 2*weights(0, 0), weights(10, 5), 1e-12)
	require.InEpsilon(t, weights(0, 0), weights(10, 11), 1e-12)
	require.InEpsilon(t, weights(0, 0), weights(0, 5), 1e-12, "not known")
	require.InEpsilon(t, weights(0, 0), weights(10, 0), 1e-12, "no limit")
}

// Ensure that a key is read 1.5 times if two query heads share it and Engine.Reread is 0.5.
func TestWhatSharedHeadsChange(t *testing.T) {
	s := tiny(1) // groups of 2
	s.Engine.Reread = 0.5
	require.InEpsilon(t, 1e-9*256*1.5, s.model(t, 16).context, 1e-12)
}

// Ensure that if there are more workers than KV heads, each worker has the keys, values and matrices of one head.
func TestMoreWorkersThanKVHeads(t *testing.T) {
	four, eight := tiny(4).model(t, 16), tiny(8).model(t, 16)
	require.Equal(t, four.context, eight.context)
	require.Equal(t, four.swapBlock, eight.swapBlock)
	require.InEpsilon(t, four.promptPair/2, eight.promptPair, 1e-12)
	require.InEpsilon(t, 2e-9*2*(2*100*64/8+2*100*32/4+2*100*256/8)+2e-9*tinyHead/8, eight.weights, 1e-12)
}

// eachFitted calls test for setups of vLLM V1: for models of several sizes on each GPU for which vLLM V1 has
// constants.
func eachFitted(t *testing.T, test func(name string, s Setup)) {
	for _, gpu := range slices.Concat(MeasuredGPUs(), OtherGPUs()) {
		f := engineOn(t, gpu)
		for _, llm := range []string{"qwen2.5-0.5b", "llama-3-8b", "llama-3-70b", "mixtral-8x7b"} {
			for _, workers := range []int{1, 2} {
				s := roofline(t, llm, gpu, workers)
				test(gpu+": "+llm, s.On(f))
			}
		}
	}
}

func TestNoEngineIsFasterThanItsRoofline(t *testing.T) {
	eachFitted(t, func(name string, s Setup) {
		m, l := s.times(16), s.LLM
		kv := float64(l.kvBytes(s.Workers, 1))
		active := l.sharedMatrices(s.Workers) + float64(l.ExpertsPerToken)*l.expertMatrices(s.Workers)
		for _, n := range []int{1, 8, 64, 512, 4096} {
			seqs, context := float64(n), 1000
			t1 := m.Seconds(Work{Seqs: n, Context: n * context})
			bytes := l.ParameterBytes*l.sharedMatrices(s.Workers) + kv*seqs*float64(context)
			require.GreaterOrEqual(t, t1, bytes/(giga*s.GPU.Bandwidth), name)
			require.GreaterOrEqual(t, t1, 2*active*seqs/(tera*s.GPU.rate(l.Computed)), name)
			require.GreaterOrEqual(t, m.Seconds(Work{Prompt: n}), 2*active*seqs/(tera*s.GPU.rate(l.Computed)), name)
		}
	})
}

func TestMoreTakesLonger(t *testing.T) {
	var models []*Model
	for _, name := range Setups() {
		models = append(models, open(t, name, 16))
	}
	eachFitted(t, func(_ string, s Setup) { models = append(models, s.times(16)) })
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string) int { return rapid.IntRange(0, 1<<30).Draw(t, name) }
		work := func() Work {
			return Work{n("seqs"), n("context"), n("prompt"), int64(n("pairs")), n("blocks"), n("swaps"), n("copies")}
		}
		a, d := work(), work()
		b := Work{a.Seqs + d.Seqs, a.Context + d.Context, a.Prompt + d.Prompt, a.PromptContext + d.PromptContext,
			a.SwapBlocks + d.SwapBlocks, a.Swaps + d.Swaps, a.CopyBlocks + d.CopyBlocks}
		for _, m := range models {
			less, more := m.Seconds(a), m.Seconds(b)
			if less < 0 || more < less || math.IsInf(more, 0) || math.IsNaN(more) {
				t.Fatalf("%s: %v takes %v, %v takes %v", m.Describe(), a, less, b, more)
			}
		}
	})
}

func TestTheDescriptionNamesModelAndGPUs(t *testing.T) {
	m := open(t, "paper-opt-13b", 16)
	require.Equal(t, "opt-13b on 1 x a100-40gb, calibrated line", m.Describe())
	require.Equal(t, "in ms: 22 + 0.3 for each sequence + 0.0007 for each context token + 0.14 for each prompt token; "+
		"a block of 16 swaps in 0.912 ms", m.Constants())
	m = open(t, "paper-opt-66b", 32)
	require.Regexp(t, `^opt-66b on 4 x a100-40gb, .* without data `, m.Describe())
	require.Regexp(t, `^roofline, in ms: 36\.63 \(weights 23\.47\) .*; a block of 32 swaps in 1\.\d+ ms$`, m.Constants())
	require.NotContains(t, m.Describe()+m.Constants(), "\n")
}

func TestSecondsAllocatesNothing(t *testing.T) {
	m, w := open(t, "paper-opt-66b", 16), Work{Seqs: 30, Context: 15_000, Prompt: 161}
	require.Zero(t, testing.AllocsPerRun(100, func() { w.Seqs += int(m.Seconds(w)) }))
}
