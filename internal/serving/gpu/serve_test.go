package gpu_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/pooling"
	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/gpu"
	"llmmemory/internal/serving/kvoffload"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/induction"
	"llmmemory/internal/testkit/level"
)

// small is a model with the bytes of the byte tokenizer as tokens. Its heads need no padding.
var small = model.Config{Family: "llama", VocabSize: 256, HiddenSize: 64, NumLayers: 1, NumHeads: 2, NumKVHeads: 1, HeadDim: 64, IntermediateSize: 96,
	MaxModelLen: 256, NormEps: 1e-5, Rope: &model.Rope{Theta: 1000}}

// hybrid returns a model of one layer with a window and one without, so that its layers are in two groups.
func hybrid() model.Config {
	c := small
	c.NumLayers, c.SlidingWindow, c.Full = 2, 24, []bool{false, true}
	return c
}

func openSmall(c model.Config) opener {
	return built(c, randomWeights(c.NumLayers, `
		model.layers.%.input_layernorm.weight 1 64
		model.layers.%.self_attn.q_proj.weight 128 64
		model.layers.%.self_attn.k_proj.weight 64 64
		model.layers.%.self_attn.v_proj.weight 64 64
		model.layers.%.self_attn.o_proj.weight 64 128
		model.layers.%.post_attention_layernorm.weight 1 64
		model.layers.%.mlp.gate_proj.weight 96 64
		model.layers.%.mlp.up_proj.weight 96 64
		model.layers.%.mlp.down_proj.weight 64 96`, `
		model.embed_tokens.weight 256 64
		model.norm.weight 1 64
		lm_head.weight 256 64`))
}

// A counter adds up what steps report.
type counter struct {
	engine.NoObserver
	preempted, hits, external atomic.Int64
}

func (c *counter) Step(r engine.StepReport) {
	c.preempted.Add(int64(r.Preempted))
	c.hits.Add(int64(r.CacheHits))
	c.external.Add(int64(r.ExternalHits))
}

// start starts an engine on a GPU, or on the CPU if w is nil.
func start(t *testing.T, m *model.Model, w *gpu.Model, o engine.Observer, change func(*engine.Config)) *engine.Engine {
	t.Helper()
	c := engine.Config{Model: m, Tokenizer: induction.Tokenizer(), Pool: newPool(t), KVCacheBytes: 1 << 20, MaxModelLen: 128, MaxNumBatchedTokens: 64}
	if w != nil {
		c.Device = w
	}
	if change != nil {
		change(&c)
	}
	e, err := engine.New(c, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// transcript returns the events of a request.
func transcript(t *testing.T, e *engine.Engine, r engine.Request) string {
	s, err := e.Submit(r)
	if err != nil {
		t.Error(err)
		return ""
	}
	texts := make([]strings.Builder, max(r.N, 1))
	for {
		events, err := s.Next(t.Context())
		if err != nil {
			t.Error(err)
		}
		if events == nil || err != nil {
			break
		}
		for _, event := range events {
			fmt.Fprintf(&texts[event.Index], "%v %v %v %v %v\n", event.Tokens, event.Prompt, event.Finish, event.Err, event.Pooled)
		}
	}
	all := ""
	for i := range texts {
		all += texts[i].String() + "\n"
	}
	return all
}

// requests returns requests with a common prefix of two blocks: greedy and random ones, one with several
// answers, one with log probabilities, one with a penalty, and two for vectors.
func requests() (all []engine.Request) {
	common := randomTokens(9, 32, 256)
	for i := range 6 {
		r := engine.Request{Prompt: append(append([]int32(nil), common...), randomTokens(uint64(i), 1+i, 256)...), MaxTokens: 9, IgnoreEOS: true, Params: sampling.Default()}
		r.Temperature = 0
		switch i {
		case 1:
			r.Temperature, r.Seed = 1, 5
		case 2:
			r.N, r.Temperature, r.Seed = 3, 1, 8
		case 3:
			r.Logprobs, r.PromptLogprobs = 2, 1
		case 4:
			r.Prompt, r.FrequencyPenalty = r.Prompt[20:], 1
		}
		all = append(all, r)
	}
	for _, kind := range []pooling.Type{pooling.Last, pooling.Mean} {
		all = append(all, engine.Request{Prompt: append(slices.Clone(common), 1, 2, 3), Pooling: kind})
	}
	return all
}

// Ensure that a request has the same events alone and beside others: with prefix hits, preemptions, small
// chunks and forks, and while another request is cancelled. The GPU chooses greedy tokens.
func TestAnswersDoNotDependOnWhatRunsBeside(t *testing.T) {
	level.SkipNormal(t)
	d := openDevice(t)
	requireSameAnswers(t, d, small, 6, requests()) // blocks of 16 tokens, beside the null block
	requireSameAnswers(t, d, hybrid(), 10, requests()[:3])
}

func requireSameAnswers(t *testing.T, d *gpu.Device, config model.Config, blocks int64, requests []engine.Request) {
	t.Helper()
	m, w := load(t, d, openSmall(config))
	reference := start(t, m, w, nil, func(c *engine.Config) { c.NoPrefixCaching, c.NoAsyncScheduling = true, true })
	var want []string
	for _, r := range requests {
		want = append(want, transcript(t, reference, r))
	}
	counts := &counter{}
	cramped := start(t, m, w, counts, func(c *engine.Config) {
		c.MaxModelLen, c.KVCacheBytes, c.MaxNumBatchedTokens = 64, (1+blocks)*16*2*64*2, 20
	})
	// Which requests run in the same step depends on time. Nearly always, one round has a preemption and a
	// hit.
	for round := 0; round < 50 && (counts.preempted.Load() == 0 || counts.hits.Load() == 0); round++ {
		var wait sync.WaitGroup
		for i, r := range requests {
			wait.Go(func() {
				if got := transcript(t, cramped, r); got != want[i] {
					t.Errorf("request %d\nalone\n%s\ntogether\n%s", i, want[i], got)
				}
			})
		}
		wait.Go(func() {
			s, err := cramped.Submit(requests[0])
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = s.Next(t.Context())
			s.Cancel()
		})
		wait.Wait()
	}
	require.Positive(t, counts.preempted.Load())
	require.Positive(t, counts.hits.Load())
	load := cramped.Load()
	require.Equal(t, load.Blocks, load.FreeBlocks)
}

// Ensure that greedy answers on the GPU and on the CPU have the same tokens. The test ends at the first different
// token, because the following tokens depend on it. At this token, the two largest logits must be almost equal: only
// then can rounding errors decide which of them is larger.
func TestGreedyTokensAreThoseOfTheCPU(t *testing.T) {
	d := openDevice(t)
	m, w := load(t, d, openSmall(small))
	pool := newPool(t)
	onHost, err := openSmall(small)(pool)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, onHost.Close()) })
	r := requests()[3]
	numEqual := 0
	a, b := tokensOf(t, start(t, onHost, nil, nil, nil), r), tokensOf(t, start(t, m, w, nil, nil), r)
	for i := range a {
		require.InDelta(t, a[i].Logprob.Value, b[i].Logprob.Value, 0.03)
		margin := math.Abs(float64(a[i].Top[0].Value - a[i].Top[1].Value))
		if a[i].ID != b[i].ID {
			require.Less(t, margin, 0.03)
			break
		}
		numEqual++
	}
	require.Greater(t, numEqual, 4)
}

func tokensOf(t *testing.T, e *engine.Engine, r engine.Request) (all []engine.Token) {
	t.Helper()
	s, err := e.Submit(r)
	require.NoError(t, err)
	for {
		events, err := s.Next(t.Context())
		require.NoError(t, err)
		if events == nil {
			return all
		}
		for _, event := range events {
			require.NoError(t, event.Err)
			all = append(all, event.Tokens...)
		}
	}
}

// Ensure that blocks are stored in a tier and loaded from it, through pinned memory.
func TestBlocksComeBackFromATier(t *testing.T) {
	for _, cache := range []string{"auto", "fp8_e5m2"} {
		t.Run(cache, func(t *testing.T) { requireBlocksFromTier(t, cache) })
	}
}

func requireBlocksFromTier(t *testing.T, cache string) {
	t.Helper()
	d := openDevice(t)
	m, w := loadWith(t, d, openSmall(small), cache)
	dir, r := t.TempDir(), requests()[5]
	tiered := func(c *engine.Config) {
		tier, err := kvoffload.NewFolder(dir, kvoffload.NewSpace("model"), 1<<30)
		require.NoError(t, err)
		c.Hash, c.Offload = blockhash.CBOR("0"), &kvoffload.Config{Tier: tier, Stores: true, Loads: true}
	}
	first := start(t, m, w, nil, tiered)
	want := transcript(t, first, r)
	require.NoError(t, first.Close())
	counts := &counter{}
	second := start(t, m, w, counts, tiered)
	require.Equal(t, want, transcript(t, second, r))
	require.NoError(t, second.Close())
	require.Equal(t, int64(32), counts.external.Load())
}

// Ensure that CopyBlocks copies the pairs in their order: if the source of a pair is the destination of an earlier
// pair, the pair copies the new content. The blocks of all layers must be copied.
func TestBlocksAreCopiedInOrder(t *testing.T) {
	driver, d := openDriver(t)
	driver.Order(1) // a kernel copies the last pair first
	m, w := load(t, d, openSmall(hybrid()))
	r := onGPU(t, m, w)
	block := make([]byte, 2*2*blockSize*64*2)
	for i := range block {
		block[i] = byte(i * 7 / 5)
	}
	other := make([]byte, len(block))
	r.WriteBlocks([]int32{1}, [][]byte{block})
	r.WriteBlocks([]int32{4}, [][]byte{other})
	require.NoError(t, r.CopyBlocks([]kvstore.Pair{{Src: 1, Dst: 2}, {Src: 1, Dst: 5}, {Src: 2, Dst: 3}, {Src: 4, Dst: 1}, {Src: 3, Dst: 4}}))
	step(t, r, chunk{[]int32{1}, 0, []int32{9}}) // waits for the copies
	for id, want := range map[int32][]byte{1: other, 2: block, 3: block, 4: block, 5: block} {
		got := make([]byte, len(block))
		r.ReadBlocks([]int32{id}, [][]byte{got})
		require.Equal(t, want, got, "block %d", id)
	}
	require.ErrorContains(t, r.CopyBlocks([]kvstore.Pair{{Src: 1, Dst: numBlocks}}), "copying block 1 to block 24 of 24")
}
