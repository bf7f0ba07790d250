package cost

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func roofline(t testing.TB, llm, gpu string, workers int) Setup {
	s, err := New(llm, gpu, workers)
	require.NoError(t, err)
	return s
}

func setup(t testing.TB, name string) Setup {
	s, err := Open(name)
	require.NoError(t, err)
	return s
}

func timed(t testing.TB, s Setup) *Model {
	m, err := s.Model(16)
	require.NoError(t, err)
	return m
}

func pool(t testing.TB, s Setup) int {
	n, _, err := s.Pool(16)
	require.NoError(t, err)
	return n
}

func engineOn(t testing.TB, gpu string) Fitted {
	f, err := OpenVLLM(gpu)
	require.NoError(t, err)
	return f
}

func llm(t testing.TB, name string) LLM {
	l, err := OpenLLM(name)
	require.NoError(t, err)
	return l
}

func TestQuantisedNumbersChangeBytesAndRates(t *testing.T) {
	plain := roofline(t, "llama-3-8b", "h100-80gb", 1)
	base := timed(t, plain)
	for _, c := range []struct {
		name, weights, kv     string
		read, compute, tokens float64 // of fp16
	}{
		{"weights in fp8", "fp8", "", 0.5, plain.GPU.FP16 / plain.GPU.FP8, 1},
		{"weights in int8", "int8", "", 0.5, plain.GPU.FP16 / plain.GPU.INT8, 1},
		{"weights in int4 are computed in fp16", "int4", "", 0.3116, 1, 1}, // the head is in 16 bits
		{"keys and values in fp8", "", "fp8", 1, 1, 0.5},
		{"both", "fp8", "int8", 0.5, plain.GPU.FP16 / plain.GPU.FP8, 0.5},
		{"as it is", "bf16", "fp16", 1, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := plain.Quantised(c.weights, c.kv)
			require.NoError(t, err)
			m := timed(t, s)
			require.InEpsilon(t, c.read, m.weights/base.weights, 1e-3)
			require.InEpsilon(t, c.compute, m.token/base.token, 1e-9)
			require.InEpsilon(t, c.tokens, m.context/base.context, 1e-9)
			blocks := pool(t, s)
			before := pool(t, plain)
			if c.read < 1 || c.tokens < 1 {
				require.Greater(t, blocks, before)
			} else {
				require.Equal(t, before, blocks)
			}
		})
	}
	int4, err := plain.Quantised("int4", "")
	require.NoError(t, err)
	require.InEpsilon(t, 5.73e9, int4.LLM.weightBytes(1), 1e-3, "embedding and head are in 16 bits")
	b200 := roofline(t, "llama-3-8b", "b200-180gb", 1)
	fp4, err := b200.Quantised("fp4", "")
	require.NoError(t, err)
	require.Equal(t, "fp4", fp4.LLM.numbers())
	require.InEpsilon(t, 0.25, timed(t, fp4).token/timed(t, b200).token, 1e-9,
		"NVIDIA: 9,000 TFLOPS of fp4, 2,250 of fp16")
	require.InEpsilon(t, 6.979e9*4.5/8+1.051e9*2, fp4.LLM.weightBytes(1), 1e-3, "embedding and head are in 16 bits")
	for _, c := range []struct{ name, gpu, weights, kv, want string }{
		{"a GPU without fp4", "h100-80gb", "fp4", "", "computed in fp4, which h100-80gb cannot do"},
		{"a GPU without fp8", "a100-40gb", "fp8", "", "cannot do"},
		{"no such numbers", "h100-80gb", "fp3", "", "want fp16"},
		{"keys and values in 4 bits", "h100-80gb", "", "int4", "want fp16"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := roofline(t, "llama-3-8b", c.gpu, 1).Quantised(c.weights, c.kv)
			require.ErrorIs(t, err, ErrFile)
			require.ErrorContains(t, err, c.want)
		})
	}
	line := setup(t, "paper-opt-13b")
	_, err = line.Quantised("int8", "")
	require.ErrorIs(t, err, ErrFile)
}

// Ensure that two stages halve the times that grow with the number of tokens. A single token must take longer, but only
// by the transfers between stages and by Engine.Base of the second stage.
func TestStagesShareTheLayers(t *testing.T) {
	one := roofline(t, "llama-3-8b", "h100-80gb", 1)
	two := one
	two.Stages = 2
	a, b := timed(t, one), timed(t, two)
	single := Work{Seqs: 1, Context: 1}
	hops := 2*micro*one.GPU.LinkLatency + milli*one.Engine.Base
	require.InDelta(t, a.Seconds(single)+hops, b.Seconds(single), 2*a.seq)
	prompts := Work{Seqs: 1, Prompt: 1 << 20, PromptContext: 1 << 36}
	require.InEpsilon(t, 0.5, b.Seconds(prompts)/a.Seconds(prompts), 0.02)
	gpu1 := pool(t, one)
	gpu2 := pool(t, two)
	require.Greater(t, gpu2, 2*gpu1, "half of the layers and half of the weights")
	require.Equal(t, 2, two.GPUs())
	require.Contains(t, b.Describe(), "2 stages: a roofline, compared with no measurement")

	two.Stages = 5
	_, err := two.Model(16)
	require.ErrorContains(t, err, "5 stages cannot share the 32 layers")
	large := roofline(t, "llama-3-70b", "h100-80gb", 1)
	_, _, err = large.Pool(16)
	require.ErrorIs(t, err, ErrMemory)
	large.Stages = 4
	_, _, err = large.Pool(16)
	require.NoError(t, err, "a model that does not fit on one GPU")
}

// Ensure that many tokens read all experts. Ensure that the weights in memory include all experts.
func TestTokensReadTheExpertsTheyGoThrough(t *testing.T) {
	s := roofline(t, "mixtral-8x7b", "h100-80gb", 2)
	m := timed(t, s)
	require.InEpsilon(t, 90.2e9/2, m.experts.all*giga*s.GPU.Bandwidth*s.Engine.Weights, 0.01,
		"45.1 G parameters of 2 bytes, on two GPUs")
	for _, c := range []struct {
		name   string
		tokens float64
		part   float64
	}{
		{"one token", 1, 2.0 / 8},
		{"two", 2, 1 - 0.75*0.75},
		{"many", 200, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			read, compute := m.experts.seconds(c.tokens)
			require.InEpsilon(t, c.part, read/m.experts.all, 1e-9)
			require.InEpsilon(t, c.tokens*2*2*s.LLM.expertMatrices(2)/(tera*s.GPU.FP16*s.Engine.Compute), compute, 1e-9)
		})
	}
	require.InEpsilon(t, 46.7e9*2/2, s.LLM.weightBytes(2), 0.01)
	_, _, err := roofline(t, "mixtral-8x7b", "a100-80gb", 1).Pool(16)
	require.ErrorIs(t, err, ErrMemory)
}

// Ensure that waiting for the worker with the most tokens costs relatively less if there are more tokens.
func TestExpertsApartWaitForTheFullestWorker(t *testing.T) {
	s := roofline(t, "mixtral-8x7b", "h100-80gb", 4)
	shared := timed(t, s)
	s.ExpertsApart = true
	apart := timed(t, s)
	last := math.Inf(1)
	for _, n := range []float64{1, 8, 64, 4096} {
		readShared, computeShared := shared.experts.seconds(n)
		readApart, computeApart := apart.experts.seconds(n)
		require.Equal(t, readShared, readApart)
		require.Greater(t, computeApart, computeShared)
		require.Less(t, computeApart/computeShared, last)
		last = computeApart / computeShared
	}
	require.InEpsilon(t, 1+math.Sqrt(2*math.Log(4)/2048), last, 1e-9)

	s.LLM.Experts = 6
	_, err := s.Model(16)
	require.ErrorIs(t, err, ErrFile)
	dense := roofline(t, "llama-3-8b", "h100-80gb", 2)
	dense.ExpertsApart = true
	_, err = dense.Model(16)
	require.ErrorContains(t, err, "no mixture of experts")
}

func TestASlowDiskSlowsSwaps(t *testing.T) {
	s := roofline(t, "opt-13b", "a100-40gb", 1)
	toCPU := timed(t, s)
	s.SwapGigabytes = 2
	toDisk := timed(t, s)
	require.InEpsilon(t, float64(s.LLM.KVBytesPerToken())*16/2e9, toDisk.swapBlock, 1e-9)
	require.Greater(t, toDisk.swapBlock, 5*toCPU.swapBlock)
	s.SwapGigabytes = 1e6
	require.Equal(t, toCPU.swapBlock, timed(t, s).swapBlock)
}

// Ensure that the description warns of 8-bit keys and values if no published point has them. For a GPU with points,
// only its own points count.
func TestKeysAndValuesThatNoPointHasAreNamed(t *testing.T) {
	for _, c := range []struct {
		name, gpu, kv string
		named         bool
	}{
		{"no point has them", "a100-80gb", "fp8", true},
		{"points have them", "h100-80gb", "fp8", false},
		{"points have them on other GPUs", "l4", "fp8", false},
		{"they are in 16 bits", "a100-80gb", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := roofline(t, "llama-3-8b", c.gpu, 1)
			s, err := s.Quantised("", c.kv)
			require.NoError(t, err)
			f := engineOn(t, c.gpu)
			m := timed(t, s.On(f))
			require.Equal(t, c.named, strings.Contains(m.Describe(),
				"keys and values in 8 bits: a roofline, compared with no measurement"), m.Describe())
		})
	}
}
