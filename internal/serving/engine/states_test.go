package engine_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/kvoffload"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/tokenizer"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/serving/parallel"
	"llmmemory/internal/testkit/level"
)

// convolutions returns a model of LFM2 with random weights, whose states are convolutions over kernel tokens.
func convolutions(t testing.TB, pool *parallel.Pool, kernel int) *model.Model {
	const hidden, inter = 64, 96
	c := model.Config{Family: "lfm2", QKNorm: model.HeadNorm, IntermediateSize: inter, Recurrence: &model.Recurrence{Kind: model.ShortConv, Kernel: kernel}}
	return hybridModel(t, pool, c, func(add func(name string, rows, cols int), recurrent bool) {
		add("operator_norm", 1, hidden)
		add("ffn_norm", 1, hidden)
		add("feed_forward.w1", inter, hidden)
		add("feed_forward.w3", inter, hidden)
		add("feed_forward.w2", hidden, inter)
		if recurrent {
			add("conv.in_proj", 3*hidden, hidden)
			add("conv.out_proj", hidden, hidden)
			add("conv.conv", hidden, kernel)
		}
	}, "model.embedding_norm", "self_attn.out_proj", "layernorm")
}

// mamba returns a model of Granite 4 with random weights, whose states have a matrix for each of four heads.
func mamba(t testing.TB, pool *parallel.Pool, _ int) *model.Model { return mambaHalves(t, pool, nil) }

// halves returns the model of mamba with layers of which only one half is left.
func halves(t testing.TB, pool *parallel.Pool, _ int) *model.Model {
	return mambaHalves(t, pool, []model.Half{model.Mixer, model.FeedForward, model.Mixer, model.Both, model.FeedForward, model.Both})
}

func mambaHalves(t testing.TB, pool *parallel.Pool, halves []model.Half) *model.Model {
	const hidden, inter, heads, dim, size = 64, 96, 4, 32, 16
	c := model.Config{Family: "granitemoehybrid", Halves: halves, IntermediateSize: inter, NoRope: make([]bool, 6),
		Recurrence: &model.Recurrence{Kind: model.Mamba2, Kernel: 4, Heads: heads, HeadDim: dim, KeyHeads: 1, KeyDim: size}}
	return hybridModel(t, pool, c, func(add func(name string, rows, cols int), recurrent bool) {
		add("input_layernorm", 1, hidden)
		add("post_attention_layernorm", 1, hidden)
		add("shared_mlp.input_linear", 2*inter, hidden)
		add("shared_mlp.output_linear", hidden, inter)
		if recurrent {
			add("mamba.in_proj", 2*heads*dim+2*size+heads, hidden)
			add("mamba.out_proj", hidden, heads*dim)
			add("mamba.conv1d", heads*dim+2*size, 4)
			add("mamba.norm", 1, heads*dim)
			for _, name := range []string{"A_log", "dt_bias", "D"} {
				add("mamba."+name, 1, heads)
			}
		}
	}, "model.norm", "self_attn.o_proj", "")
}

// hybridModel returns a model with random weights. Layers 0, 1, 3 and 4 have a state, and layers 2 and 5 have attention.
// layer adds the tensors of a layer but those of attention. out is the name of attention's output, and norm the end of
// the names of its norms.
func hybridModel(t testing.TB, pool *parallel.Pool, c model.Config, layer func(func(string, int, int), bool), last, out, norm string) *model.Model {
	const hidden, heads, kvHeads, dim, vocab = 64, 8, 4, 8, 256
	rnd := rand.New(rand.NewPCG(5, 8))
	var all []*weights.Tensor
	add := func(name string, rows, cols int) {
		v := make([]float32, rows*cols)
		for i := range v {
			v[i] = float32(rnd.NormFloat64() * 0.4)
		}
		if !slices.Contains([]string{"A_log", "dt_bias", "D"}, name[strings.LastIndex(name, ".")+1:]) {
			name += ".weight"
		}
		all = append(all, weights.FromFloats(name, rows, cols, v))
	}
	c.VocabSize, c.HiddenSize, c.NumLayers, c.NumHeads, c.NumKVHeads, c.HeadDim = vocab, hidden, 6, heads, kvHeads, dim
	c.MaxModelLen, c.NormEps, c.Rope, c.TieEmbeddings, c.End = 1024, 1e-5, &model.Rope{Theta: 10000}, true, []int32{3}
	c.Recurrence.Layers = []bool{true, true, false, true, true, false}
	add("model.embed_tokens", vocab, hidden)
	add(last, 1, hidden)
	for i, recurrent := range c.Recurrence.Layers {
		named := func(name string, rows, cols int) { add(fmt.Sprintf("model.layers.%d.%s", i, name), rows, cols) }
		layer(named, recurrent)
		if recurrent {
			continue
		}
		named("self_attn.q_proj", heads*dim, hidden)
		named("self_attn.k_proj", kvHeads*dim, hidden)
		named("self_attn.v_proj", kvHeads*dim, hidden)
		named(out, hidden, heads*dim)
		if norm != "" {
			named("self_attn.q_"+norm, 1, dim)
			named("self_attn.k_"+norm, 1, dim)
		}
	}
	m, err := model.Build(c, weights.Collect(all...), pool, model.Part{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// startConvolutions starts an engine with the model of convolutions.
func startConvolutions(t testing.TB, kernel int, change func(*engine.Config), o engine.Observer) *engine.Engine {
	pool := newPool(t, 2)
	return startModel(t, convolutions(t, pool, kernel), tokenizer.Bytes(1, 2, 3), pool, change, o)
}

// solo returns the greedy answer to a prompt, which it computes with the model and without an engine: first the prompt
// in one piece, then one token after the other. Block 0 is the null block.
func solo(t *testing.T, m *model.Model, pool *parallel.Pool, prompt []int32, maxTokens int) []int32 {
	store, err := kvstore.New(kvstore.Config{Shape: m.KVShape(128, attention.F32), Layers: m.NumLayers, NumBlocks: 5}, pool)
	require.NoError(t, err)
	defer store.Close()
	r, err := model.NewRunner(m, store, pool, nil)
	require.NoError(t, err)
	all := slices.Clone(prompt)
	for computed := 0; len(all) < len(prompt)+maxTokens; {
		n := len(all) - computed
		b := model.Batch{QueryStart: []int32{0, int32(n)}, SeqLens: []int32{int32(len(all))}, Tokens: all[computed:],
			Logits: []int32{int32(n - 1)}, Blocks: model.Blocks{BlockTables: []int32{1, 2, 3, 4}, TableStride: 4}}
		for ; computed < len(all); computed++ {
			b.Positions, b.Slots = append(b.Positions, int32(computed)), append(b.Slots, 128+int64(computed))
		}
		require.NoError(t, r.Forward(&b))
		_, err := r.ComputeLogits(&b, 0, 1)
		require.NoError(t, err)
		all = append(all, r.Largest()[0])
	}
	return all[len(prompt):]
}

// A gate is a task that does not end before its channel open is closed.
type gate struct{ running, open chan struct{} }

func (g gate) Do(int, int) {
	close(g.running)
	<-g.open
}

// hold makes engines compute nothing with the pool before goOn is called. So requests that are submitted before run
// together.
func hold(t *testing.T, pool *parallel.Pool) (goOn func()) {
	g := gate{make(chan struct{}), make(chan struct{})}
	go pool.Run(1, g)
	<-g.running
	goOn = sync.OnceFunc(func() { close(g.open) })
	t.Cleanup(goOn) // before the engine is closed
	return goOn
}

// together returns the answers to requests that run together.
func together(t *testing.T, e *engine.Engine, requests []engine.Request) [][]int32 {
	goOn := hold(t, e.Config().Pool)
	var wait sync.WaitGroup
	answers := make([][]int32, len(requests))
	for i, r := range requests {
		s, err := e.Submit(r)
		require.NoError(t, err)
		wait.Go(func() { answers[i] = read(t, s, 1)[0].ids })
	}
	goOn()
	wait.Wait()
	return answers
}

// Ensure that answers of a model with states are those of the model alone, to the last bit of every state. The memory is
// so small that requests are preempted. Prompts are computed in chunks, and found in the prefix cache.
func TestAModelWithStatesAnswersAsIfItWereAlone(t *testing.T) {
	const block = 2 * 2 * 8 * 4 * 8 * 4 // bytes of 8 tokens in the two layers of a group
	rnd := rand.New(rand.NewPCG(4, 9))
	var requests []engine.Request
	for i := range 10 {
		r := request(strings.Repeat(story, rnd.IntN(4))+fmt.Sprintf("The code %d of", i%3), 5+rnd.IntN(40))
		r.IgnoreEOS = true
		requests = append(requests, r)
	}
	type testCase struct {
		name   string
		kernel int // 0: the model of mamba; -1: that of halves
		change func(*engine.Config)
		hits   bool
	}
	preempted := int64(0)
	for _, test := range level.First(5, []testCase{
		{"Mamba 2", 0, func(c *engine.Config) { c.KVCacheBytes = 18 * 5 * block }, true},
		{"halves of layers", -1, func(c *engine.Config) { c.KVCacheBytes = 18 * 5 * block }, true},
		{"states larger than a block", 12, func(c *engine.Config) { c.KVCacheBytes = 26 * 2 * block }, true},
		{"states at ends of blocks", 3, func(c *engine.Config) { c.AllStates, c.MaxNumSeqs = true, 10 }, true},
		{"one state for each request", 3, func(c *engine.Config) { c.NoPrefixCaching = true; c.KVCacheBytes /= 2 }, false},
		{"states at ends of chunks", 3, func(c *engine.Config) { c.KVCacheBytes = 40 * block }, true},
		{"large states at ends of blocks", 12, func(c *engine.Config) { c.AllStates, c.MaxNumSeqs = true, 10 }, true},
	}) {
		t.Run(test.name, func(t *testing.T) {
			counts, pool := &counter{}, newPool(t, 1)
			open := convolutions
			switch test.kernel {
			case 0:
				open = mamba
			case -1:
				open = halves
			}
			m := open(t, pool, test.kernel)
			two := newPool(t, 2)
			e := startModel(t, open(t, two, test.kernel), tokenizer.Bytes(1, 2, 3), two, func(c *engine.Config) {
				c.BlockSize, c.MaxModelLen, c.KVCacheBytes = 8, 208, 82*block
				c.MaxNumBatchedTokens, c.MaxNumSeqs = 24, 8
				test.change(c)
			}, counts)
			var want [][]int32
			for _, r := range requests {
				want = append(want, solo(t, m, pool, r.Prompt, r.MaxTokens))
			}
			for range 2 {
				require.Equal(t, want, together(t, e, requests))
			}
			requireIdle(t, e)
			require.Equal(t, test.hits, counts.hits.Load() > 0)
			preempted += counts.preempted.Load()
		})
	}
	require.NotZero(t, preempted, "no request was preempted")
}

// Ensure that each of several answers to one prompt is the same as if it were generated alone.
func TestSeveralAnswersOfAModelWithStates(t *testing.T) {
	e := startConvolutions(t, 3, func(c *engine.Config) { c.BlockSize = 8 }, nil)
	r := request(story+"The code", 40)
	r.N, r.Temperature, r.Seed = 4, 1.5, 11
	for i, a := range ask(t, e, r) {
		alone := r
		alone.N, alone.Seed = 1, r.Seed+uint64(i)
		require.Equal(t, ask(t, e, alone)[0], a, "answer %d", i)
	}
	requireIdle(t, e)
}

// Ensure that the memory map shows the blocks of states: in each of two groups at most the state before the last step
// and the one after it, beside the 26 blocks of keys and values.
func TestTheMemoryMapShowsStates(t *testing.T) {
	seen := &captured{n: 3, tokens: 203}
	e := startConvolutions(t, 3, func(c *engine.Config) { c.BlockSize, c.MaxNumBatchedTokens = 8, 24 }, nil)
	e.WatchMemory(seen)
	r := request(long()[:200], 16)
	r.IgnoreEOS = true
	ask(t, e, r)
	require.NotNil(t, seen.state)
	states := 0
	for _, a := range seen.state.Answers {
		used := len(slices.DeleteFunc(slices.Clone(a.Table), func(id int32) bool { return id == 0 }))
		if used >= 203/8 {
			continue
		}
		states++
		require.LessOrEqual(t, used, 2)
		require.Positive(t, used)
		require.Greater(t, len(a.Table), 203/8)
	}
	require.Equal(t, 2, states)
}

// Ensure that blocks have space for a state, and that what states cannot do is refused by name.
func TestLimitsOfModelsWithStates(t *testing.T) {
	e := startConvolutions(t, 12, func(c *engine.Config) { c.BlockSize, c.KVCacheDType = 4, attention.F32 }, nil)
	require.Equal(t, 12, e.Config().BlockSize, "a state has 11 × 64 numbers, and 4 tokens have 256")
	m := e.Config().Model
	for _, blocks := range []int64{20, 21, 22} {
		small := startConvolutions(t, 12, func(c *engine.Config) {
			c.BlockSize, c.KVCacheDType, c.MaxModelLen, c.KVCacheBytes = 4, attention.F32, 0, blocks*2*12*2*4*8*4
		}, nil)
		longest := request(strings.Repeat("a", small.Config().MaxModelLen-2), 1)
		require.NoError(t, ask(t, small, longest)[0].err, "%d blocks for a sequence of %d", blocks, small.Config().MaxModelLen)
	}
	for _, test := range []struct {
		change  func(*engine.Config)
		workers int
		want    string
	}{
		{func(c *engine.Config) { c.NumSpeculativeTokens = 2 }, 1, "a state cannot go back"},
		{func(c *engine.Config) { c.Offload, c.AllStates = &kvoffload.Config{}, true }, 1, "states after all blocks cannot be kept outside the process"},
		{func(*engine.Config) {}, 2, "cannot be shared out"},
	} {
		c := engine.Config{KVCacheBytes: 1 << 20, MaxModelLen: 64}
		test.change(&c)
		_, err := c.Check(&m.Config, test.workers)
		require.ErrorContains(t, err, test.want)
	}
}

// Ensure that an engine loads keys, values and states that another engine has computed, and computes them itself if one
// of these blocks is damaged.
func TestStatesInATier(t *testing.T) {
	for _, test := range []struct {
		name   string
		open   func(testing.TB, *parallel.Pool, int) *model.Model
		kernel int
		groups int // of states
		block  int // tokens
	}{{"convolutions", convolutions, 3, 2, 8}, {"large convolutions", convolutions, 12, 2, 16}, {"Mamba 2", mamba, 0, 2, 40}} {
		t.Run(test.name, func(t *testing.T) {
			dir, r := t.TempDir(), request(long()[:301], 20)
			r.IgnoreEOS = true
			run := func() (answer, int) {
				pool := newPool(t, 1)
				e := startModel(t, test.open(t, pool, test.kernel), tokenizer.Bytes(1, 2, 3), pool, func(c *engine.Config) {
					c.BlockSize, c.MaxNumBatchedTokens, c.KVCacheDType = 8, 64, attention.F32
					keepIn(c, openTier(t, dir))
				}, nil)
				require.Equal(t, test.block, e.Config().BlockSize)
				s, err := e.Submit(r)
				require.NoError(t, err)
				a := read(t, s, 1)[0]
				requireIdle(t, e)
				require.NoError(t, e.Close())
				return a, s.CachedTokens()
			}
			want, cached := run()
			require.Zero(t, cached)
			stored := contents(t, dir)
			loaded, cached := run()
			require.Equal(t, want, loaded)
			require.Equal(t, 300/test.block*test.block, cached)
			require.Len(t, stored, 320/test.block+test.groups, "keys and values of all blocks, and the states before the last token of the prompt")
			for name := range stored {
				require.NoError(t, os.Truncate(filepath.Join(dir, name), 100))
				damaged, _ := run()
				require.Equal(t, want, damaged, "%s is damaged", name)
				if !level.Long() {
					break
				}
			}
		})
	}
}
