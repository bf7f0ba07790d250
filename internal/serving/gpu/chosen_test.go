package gpu_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/gpu"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/structured"
	"llmmemory/internal/testkit/level"
)

// A hostChooser is a GPU whose tokens are chosen by the CPU, from the logits of the GPU. The engine must have one step in
// flight, because the GPU does not get the tokens.
type hostChooser struct{ *gpu.Model }

func (h hostChooser) NewRunner(c engine.RunnerConfig) (engine.DeviceRunner, error) {
	r, err := h.Model.NewRunner(c)
	return &hostRunner{DeviceRunner: r, vocab: h.VocabSize}, err
}

type hostRunner struct {
	engine.DeviceRunner
	vocab   int
	choices []sampling.Choice
	sampler sampling.Sampler
	chosen  []int32
}

func (r *hostRunner) Sample(choices []sampling.Choice) error {
	r.choices = slices.Clone(choices)
	return r.DeviceRunner.Sample(make([]sampling.Choice, len(choices)))
}

func (r *hostRunner) ComputeLogits(b *model.Batch, start, end int) ([]float32, error) {
	logits, err := r.DeviceRunner.ComputeLogits(b, start, end)
	r.chosen = slices.Clone(r.DeviceRunner.Largest())
	for i, c := range r.choices {
		switch {
		case err != nil || start > 0 || c.Params == nil:
		case c.Only >= 0:
			r.chosen[i] = c.Only
		default:
			r.chosen[i] = r.sampler.Sample(c.Params, c.State, logits[i*r.vocab:][:r.vocab])
		}
	}
	return logits, err
}

func (r *hostRunner) Largest() []int32 { return r.chosen }

// sampledRequests returns requests with each parameter that changes which token is chosen.
func sampledRequests(t *testing.T) (all []engine.Request) {
	t.Helper()
	vocabulary := make([][]byte, 256)
	for i := range vocabulary {
		if i > 3 {
			vocabulary[i] = []byte{byte(i)}
		}
	}
	v, err := structured.NewVocabulary(vocabulary, nil, nil)
	require.NoError(t, err)
	form, err := structured.Compile(v, structured.Form{Regex: "(left|right|[0-9]+), abcd(e|f)*!"})
	require.NoError(t, err)
	for i, change := range []func(r *engine.Request){
		func(r *engine.Request) { r.TopP, r.Logprobs = 0.8, 2 },
		func(r *engine.Request) { r.Temperature, r.MinP, r.TopP, r.TopK = 1.5, 0.05, 0.95, 100 },
		func(r *engine.Request) { r.RepetitionPenalty, r.FrequencyPenalty, r.PresencePenalty = 1.3, 0.5, -0.5 },
		func(r *engine.Request) { r.MinTokens, r.StopTokenIDs, r.IgnoreEOS = 12, []int32{1, 2, 3, 50}, false },
		func(r *engine.Request) { r.Constraint = form },
		func(r *engine.Request) { r.N = 2 },
		func(r *engine.Request) { r.Temperature = 0 },
		func(*engine.Request) {},
		func(r *engine.Request) { r.Temperature, r.TopK = 0.7, 20 },
		func(r *engine.Request) { r.Temperature, r.RepetitionPenalty, r.FrequencyPenalty = 0, 0.7, 1.5 },
		func(r *engine.Request) { r.LogitBias = map[int32]float32{7: 3, 9: -100, 200: 2.5} },
		func(r *engine.Request) { r.Constraint, r.Temperature, r.PresencePenalty = form, 0, 1 },
	} {
		r := engine.Request{Prompt: randomTokens(uint64(i), 5+i, 256), MaxTokens: 14, IgnoreEOS: true, Params: sampling.Default()}
		r.Seed = uint64(100 + i)
		change(&r)
		all = append(all, r)
	}
	return all
}

// Ensure that the tokens that the GPU chooses, while two steps are in flight and beside other requests, are those that the
// CPU chooses from the same logits.
func TestAnswersAreThoseOfTheCPUsSampler(t *testing.T) {
	d := openDevice(t)
	m, w := load(t, d, openSmall(small))
	reference := start(t, m, w, nil, func(c *engine.Config) { c.Device, c.NoAsyncScheduling = hostChooser{w}, true })
	requests := level.First(6, sampledRequests(t))
	want := make([]string, len(requests))
	for i, r := range requests {
		want[i] = transcript(t, reference, r)
	}
	e := start(t, m, w, nil, nil)
	var wait sync.WaitGroup
	for i, r := range requests {
		wait.Go(func() {
			if got := transcript(t, e, r); got != want[i] {
				t.Errorf("request %d\nby the CPU\n%s\nby the GPU\n%s", i, want[i], got)
			}
		})
	}
	wait.Wait()
}

// Ensure that tokens are chosen once from a batch that was begun, from logits that it has. A batch whose tokens cannot be
// chosen is no longer in flight.
func TestTokensThatCannotBeChosen(t *testing.T) {
	driver, d := openDriver(t)
	m, w := load(t, d, openSmall(small))
	r := onGPU(t, m, w)
	b := batchOf(chunk{[]int32{1, 2}, 0, []int32{1}})
	p := sampling.Default()
	choices := []sampling.Choice{{Params: &p, Only: -1}, {Params: &p, Only: 7}}
	require.ErrorIs(t, r.Sample(choices), model.ErrBatch, "no batch")
	require.NoError(t, r.Forward(b))
	require.ErrorIs(t, r.Sample(append(choices, choices...)), model.ErrBatch, "it has two logits")
	require.NoError(t, r.Sample(choices))
	require.ErrorIs(t, r.Sample(choices), model.ErrBatch, "again")
	logitsOf(t, r, b)
	require.Equal(t, int32(7), r.Largest()[1])
	if driver.Real {
		return
	}
	require.NoError(t, r.Forward(b))
	driver.Fail("cuMemcpyHtoDAsync_v2", 1)
	require.ErrorContains(t, r.Sample(choices), "CUDA_ERROR_INVALID_VALUE")
	_, err := r.ComputeLogits(b, 0, 2)
	require.ErrorIs(t, err, model.ErrBatch)
	require.NoError(t, r.Forward(b))
	require.NoError(t, r.Sample(choices))
	logitsOf(t, r, b)
	require.Equal(t, int32(7), r.Largest()[1])
}
