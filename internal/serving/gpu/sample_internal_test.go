package gpu

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/model/matrix"
	"llmmemory/internal/testkit/cudatest"
	"llmmemory/internal/testkit/level"
)

// Ensure that the kernel chooses the token that the CPU chooses from the same logits, with any parameters.
func TestTheGPUChoosesTheTokenOfTheCPU(t *testing.T) {
	level.SkipNormal(t)
	driver := cudatest.Open(t)
	d, err := Open(driver.Path, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	drawn := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		driver.Order(rapid.IntRange(0, 5).Draw(t, "order"))
		vocab := rapid.SampledFrom([]int{1, 2, 4, 8, 8, 33, 64, 100, 1100}).Draw(t, "vocabulary")
		var choices []sampling.Choice
		var logits []float32
		for range rapid.IntRange(1, 3).Draw(t, "rows") {
			choices = append(choices, drawChoice(t, vocab))
			logits = append(logits, drawLogits(t, vocab)...)
		}
		var s sampling.Sampler
		want := make([]int32, len(choices))
		for i, c := range choices {
			if want[i] = c.Only; c.Only < 0 {
				want[i] = s.Sample(c.Params, c.State, logits[i*vocab:][:vocab])
			}
		}
		require.Equal(t, want, chosen(t, d, choices, logits))
		for i, c := range choices {
			switch {
			case want[i] < 0:
				drawn["none"]++
			case c.Temperature == 0:
				drawn["greedy"]++
			default:
				drawn["random"]++
			}
		}
	})
	require.Len(t, drawn, 3, "what was drawn: %v", drawn)
}

// chosen returns the tokens that the kernel chooses, or -1.
func chosen(t require.TestingT, d *Device, choices []sampling.Choice, logits []float32) []int32 {
	var x samplingInputs
	x.collect(len(choices), choices, len(logits)/len(choices))
	return x.chosen(t, d, logits)
}

func (x *samplingInputs) chosen(t require.TestingT, d *Device, logits []float32) []int32 {
	n := len(x.rows)
	l := d.launcher()
	upload := func(data []byte) cuda.Pointer {
		m := l.alloc(max(len(data), 8))
		l.try(func() error { return m.Write(0, data) })
		return m.Pointer()
	}
	out := l.alloc(8 * n)
	l.launch(kernels.Sample{Tokens: out.Pointer(), Values: out.Pointer() + cuda.Pointer(4*n), Logits: upload(bytesOf(logits)), Rows: n, N: len(logits) / n,
		Params: upload(bytesOf(x.rows)), Biases: upload(bytesOf(x.biases)), Counts: upload(bytesOf(x.counts)), Masks: upload(bytesOf(x.masks))})
	l.try(d.stream.Synchronize)
	got := make([]byte, 8*n)
	l.try(func() error { return out.Read(0, got) })
	require.NoError(t, l.err)
	require.NoError(t, l.allocated.close())
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(binary.LittleEndian.Uint32(got[4*i:]))
		if v := math.Float32frombits(binary.LittleEndian.Uint32(got[4*(n+i):])); v-v != 0 {
			tokens[i] = -1
		}
	}
	return tokens
}

// drawChoice draws parameters and a sequence. Each part of them is often absent.
func drawChoice(t *rapid.T, vocab int) sampling.Choice {
	some := func(name string, low, high, absent float64) float64 {
		if rapid.Bool().Draw(t, name+"?") {
			return absent
		}
		return rapid.Float64Range(low, high).Draw(t, name)
	}
	token := rapid.Int32Range(0, int32(vocab-1))
	tokens := func(name string) []int32 { return rapid.SliceOfN(token, 0, 40).Draw(t, name) }
	p := sampling.Default()
	p.Temperature = rapid.SampledFrom([]float64{0, 1e-5, 0.01, 0.3, 0.7, 1, 1, 1.3, 2}).Draw(t, "temperature")
	p.TopP, p.MinP = some("top_p", 1e-9, 1, 1), some("min_p", 0, 1, 0)
	if rapid.Bool().Draw(t, "exact?") { // a sum of equal weights can be exactly this part
		p.TopP = rapid.SampledFrom([]float64{0.25, 0.5, 0.75}).Draw(t, "part")
	}
	p.TopK = int(some("top_k", 0, float64(vocab)+2, 0))
	p.RepetitionPenalty = some("repetition", 0.01, 2, 1)
	p.FrequencyPenalty, p.PresencePenalty = some("frequency", -2, 2, 0), some("presence", -2, 2, 0)
	p.Seed = rapid.Uint64().Draw(t, "seed")
	if rapid.Bool().Draw(t, "biased?") {
		p.LogitBias = map[int32]float32{}
		for _, id := range tokens("biased") {
			p.LogitBias[id] = rapid.Float32Range(-100, 100).Draw(t, "bias")
		}
	}
	require.NoError(t, p.Check(vocab))
	c := sampling.Choice{Params: &p, Only: -1, State: sampling.State{Prompt: tokens("prompt"), Output: tokens("output")}}
	if rapid.IntRange(0, 3).Draw(t, "forbidden?") == 0 {
		c.Forbidden = tokens("forbidden")
	}
	if rapid.IntRange(0, 3).Draw(t, "mask?") == 0 {
		c.Allowed = rapid.SliceOfN(rapid.Uint64(), 0, (vocab+63)/64+1).Draw(t, "mask")
	}
	if rapid.IntRange(0, 9).Draw(t, "only?") == 0 {
		c.Only = token.Draw(t, "only")
	}
	return c
}

// drawLogits draws logits, of which many may be equal, and some infinite or NaN.
func drawLogits(t *rapid.T, vocab int) []float32 {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "logits"), 1))
	spread := rapid.SampledFrom([]float64{0.01, 1, 4, 30}).Draw(t, "spread")
	step := rapid.SampledFrom([]float64{0, 0, 0.5, 1000}).Draw(t, "step")
	logits := make([]float32, vocab)
	for i := range logits {
		v := rng.NormFloat64() * spread
		if step > 0 {
			v = math.Round(v/step) * step
		}
		logits[i] = float32(v)
	}
	special := rapid.SampledFrom([]float64{0, 0, 0, 0, 0, math.Inf(-1), math.Inf(-1), math.Inf(1), math.NaN()}).Draw(t, "special")
	if special != 0 {
		for range rapid.IntRange(1, 3).Draw(t, "specials") {
			logits[rng.IntN(vocab)] = float32(special)
		}
	}
	return logits
}

// Ensure that the kernel computes the bits of the CPU's weights. A token is kept if its weight is at least MinP, and the
// largest random number chooses the last token that is kept.
func TestTheGPUComputesTheWeightsOfTheCPU(t *testing.T) {
	driver := cudatest.Open(t)
	d, err := Open(driver.Path, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	rng := rand.New(rand.NewPCG(1, 2))
	var x samplingInputs
	var logits []float32
	var want []int32
	for range 500 {
		logit, scale := float32(-30*rng.Float64()), float32(1/(0.5+rng.Float64()))
		weight := []float32{logit}
		matrix.Exp(weight, 0, scale)
		for token, least := range []float32{math.Nextafter32(weight[0], 2), weight[0]} {
			if weight[0] < 0x1p-40 {
				token = 0
			}
			x.rows = append(x.rows, kernels.SamplingRow{Random: math.MaxUint64, TopP: math.MaxUint64, Scale: scale, MinP: least, Repetition: 1, Token: -1, Mask: -1})
			logits, want = append(logits, 0, logit), append(want, int32(token))
		}
	}
	require.Equal(t, want, x.chosen(t, d, logits))
}

// Ensure that top-p keeps no token more than it must if the weights of some tokens are exactly the part that it asks for.
// The largest random number chooses the last token that is kept.
func TestTheGPUKeepsNoTokenBeyondTopP(t *testing.T) {
	driver := cudatest.Open(t)
	d, err := Open(driver.Path, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	var x samplingInputs
	for _, eighths := range []uint64{0, 1, 2, 4, 7} {
		x.rows = append(x.rows, kernels.SamplingRow{Random: math.MaxUint64, TopP: eighths << 61, Scale: 1, Repetition: 1, Token: -1, Mask: -1})
	}
	require.Equal(t, []int32{0, 0, 1, 3, 6}, x.chosen(t, d, make([]float32, 8*len(x.rows))))
}

// Ensure that the kernel and the CPU choose the same tokens from as many logits as a model has, so that sums have more
// than 32 bits.
func TestTheGPUChoosesTheTokenOfTheCPUFromManyLogits(t *testing.T) {
	driver := cudatest.Open(t)
	d, err := Open(driver.Path, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	const vocab = 40_000
	rng := rand.New(rand.NewPCG(3, 4))
	logits := make([]float32, vocab)
	for i := range logits {
		logits[i] = float32(rng.NormFloat64() / 4)
	}
	var choices []sampling.Choice
	for i := range level.Pick(2, 20) {
		p := sampling.Default()
		p.Seed, p.TopK, p.TopP = uint64(i), rng.IntN(vocab), rng.Float64()
		choices = append(choices, sampling.Choice{Params: &p, Only: -1})
	}
	var s sampling.Sampler
	for _, c := range choices {
		require.Equal(t, []int32{s.Sample(c.Params, c.State, logits)}, chosen(t, d, []sampling.Choice{c}, logits))
	}
}
