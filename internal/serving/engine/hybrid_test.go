package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/kvoffload"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/parallel"
	"llmmemory/internal/testkit/level"
)

const hybridWindow, hybridGroups = 16, 3

// hybridLlama returns a model with four window layers, which form two groups, and two layers without a
// window.
func hybridLlama(t testing.TB, pool *parallel.Pool, part model.Part) *model.Model {
	return changedLlama(t, pool, part, 256, func(c *model.Config) {
		c.NumLayers, c.SlidingWindow, c.Full = 6, hybridWindow, []bool{false, false, true, false, false, true}
	})
}

// An openPart opens a part of a model.
type openPart = func(*parallel.Pool, model.Part) *model.Model

// chunkedLlama returns a model like that of hybridLlama, with chunks in place of the window. As in Llama 4, the layers
// without chunks have no rotations and a temperature, and the norms of queries and keys come after the rotations.
func chunkedLlama(t testing.TB, pool *parallel.Pool, part model.Part) *model.Model {
	return changedLlama(t, pool, part, 256, func(c *model.Config) {
		c.NumLayers, c.AttentionChunk, c.Full = 6, hybridWindow, []bool{false, false, true, false, false, true}
		c.NoRope, c.Temperature = c.Full, &model.Temperature{Floor: 8, Scale: 0.5}
		c.QKNorm = model.RotatedNorm
	})
}

// hybridBlock is the size of a block in bytes: keys and values of two layers for 8 tokens with 4 heads
// of 8 float32 elements.
const hybridBlock = 2 * 8 * 2 * 4 * 8 * 4

// greedy returns the greedy answer to a prompt, which it computes with the model and without an engine. All layers are
// in one group that keeps every block.
func greedy(t *testing.T, open openPart, prompt []int32, maxTokens int) []int32 {
	pool, err := parallel.New(1)
	require.NoError(t, err)
	defer pool.Close()
	m := open(pool, model.Part{})
	shape := m.LayerShape(0, model.Part{}, 8, attention.F32)
	store, err := kvstore.New(kvstore.Config{Shape: shape, Layers: m.NumLayers, NumBlocks: 64}, pool)
	require.NoError(t, err)
	defer store.Close()
	var places []model.Place
	for i := range m.NumLayers {
		one := m.LayerShape(i, model.Part{}, 1, attention.F32)
		places = append(places, model.Place{Layer: i, BlockSize: shape.BlockBytes() / one.BlockBytes()})
	}
	r, err := model.NewRunner(m, store, pool, nil, places...)
	require.NoError(t, err)
	all := append([]int32(nil), prompt...)
	for computed := 0; len(all) < len(prompt)+maxTokens; {
		n := len(all) - computed
		b := model.Batch{QueryStart: []int32{0, int32(n)}, SeqLens: []int32{int32(len(all))}, Tokens: all[computed:], Logits: []int32{int32(n - 1)}}
		for i := range 64 {
			b.BlockTables = append(b.BlockTables, int32(i))
		}
		for ; computed < len(all); computed++ {
			b.Positions, b.Slots = append(b.Positions, int32(computed)), append(b.Slots, int64(computed))
		}
		require.NoError(t, r.Forward(&b))
		r.ComputeLogits(&b, 0, 1)
		all = append(all, r.Largest()[0])
	}
	return all[len(prompt):]
}

// Ensure that the answers of a model do not change when the engine frees blocks that have left the model's window.
// Only some layers of this model have a window, or chunks. The memory is so small that requests are preempted, and some
// requests find their prompts in the prefix cache.
func TestAModelWithSomeWindowsAnswersAsIfNothingWereFreed(t *testing.T) {
	level.SkipNormal(t)
	rnd := rand.New(rand.NewPCG(4, 9))
	var requests []engine.Request
	open := map[bool]openPart{
		false: func(pool *parallel.Pool, p model.Part) *model.Model { return hybridLlama(t, pool, p) },
		true:  func(pool *parallel.Pool, p model.Part) *model.Model { return chunkedLlama(t, pool, p) },
	}
	wants := map[bool][][]int32{}
	for i := range 10 {
		r := request(strings.Repeat(story, rnd.IntN(4))+fmt.Sprintf("The code %d of", i%3), 5+rnd.IntN(40))
		r.IgnoreEOS = true
		requests = append(requests, r)
		for chunks := range open {
			wants[chunks] = append(wants[chunks], greedy(t, open[chunks], r.Prompt, r.MaxTokens))
		}
	}
	for _, test := range []struct {
		name        string
		workers     int
		speculative int
		chunks      bool
	}{{"one worker", 1, 0, false}, {"two workers", 2, 0, false}, {"speculation", 1, 3, false}, {"chunks", 1, 0, true},
		{"chunks and speculation", 2, 3, true}} {
		t.Run(test.name, func(t *testing.T) {
			counts := &counter{}
			want := wants[test.chunks]
			e := startParts(t, test.workers, open[test.chunks],
				func(c *engine.Config) {
					// A request of 208 tokens has at most 26 blocks in the group without a window, and
					// 9 in each of the other groups.
					c.BlockSize, c.MaxModelLen, c.KVCacheBytes = 8, 208, 46*hybridBlock
					c.MaxNumBatchedTokens, c.MaxNumSeqs, c.NumSpeculativeTokens = 24, 8, test.speculative
				}, counts)
			for range 2 {
				require.Equal(t, want, together(t, e, requests))
			}
			requireIdle(t, e)
			require.NotZero(t, counts.preempted.Load(), "no request was preempted")
			require.NotZero(t, counts.hits.Load())
		})
	}
}

// Ensure that each of several answers to one prompt is the same as if it were generated alone. The answers share the
// prompt's blocks in all groups of layers.
func TestSeveralAnswersOfAModelWithSomeWindows(t *testing.T) {
	open := func(pool *parallel.Pool, p model.Part) *model.Model { return hybridLlama(t, pool, p) }
	e := startParts(t, 1, open, func(c *engine.Config) { c.BlockSize = 8 }, nil)
	r := request(story+"The code", 40)
	r.N, r.Temperature, r.Seed = 4, 1.5, 11
	for i, a := range ask(t, e, r) {
		alone := r
		alone.N, alone.Seed = 1, r.Seed+uint64(i)
		require.Equal(t, ask(t, e, alone)[0], a, "answer %d", i)
	}
	requireIdle(t, e)
}

// Ensure that blocks before the windows, or before the chunks, are freed. A sequence of 800 tokens has 100 blocks in the
// group without a window, and at most 9 in each of the other groups.
func TestBlocksBeforeAWindowAreGivenBack(t *testing.T) {
	t.Run("window", func(t *testing.T) { blocksAreGivenBack(t, hybridLlama, 18) })
	t.Run("chunks", func(t *testing.T) { blocksAreGivenBack(t, chunkedLlama, 16) })
}

// blocksAreGivenBack tests that a model's longest sequence fits into 139 blocks of memory, of which its layers with
// windows or chunks need the given number.
func blocksAreGivenBack(t *testing.T, llama func(testing.TB, *parallel.Pool, model.Part) *model.Model, local int) {
	seen := &captured{n: hybridGroups, tokens: 790}
	open := func(pool *parallel.Pool, p model.Part) *model.Model { return llama(t, pool, p) }
	e := startParts(t, 1, open, func(c *engine.Config) {
		c.BlockSize, c.MaxNumBatchedTokens, c.MaxModelLen, c.KVCacheBytes = 8, 24, 0, 140*hybridBlock
	}, nil)
	require.Equal(t, (139-local)*8, e.Config().MaxModelLen)
	e.WatchMemory(seen)
	r := request(strings.Repeat(story, 16), 16)
	r.IgnoreEOS = true
	ask(t, e, r)
	require.NotNil(t, seen.state)
	whole := 0
	for _, a := range seen.state.Answers {
		used := len(slices.DeleteFunc(a.Table, func(id int32) bool { return id == 0 }))
		if used >= 790/8 {
			whole++
			continue
		}
		require.LessOrEqual(t, used, 9)
	}
	require.Equal(t, 1, whole)
	requireIdle(t, e)
}

// Ensure that the factors of longrope depend only on the length of the longest sequence. If none is configured, this
// is the model's longest sequence. The size of the memory has no influence.
func TestTheFactorsOfLongRopeDoNotDependOnMemory(t *testing.T) {
	answersIn := func(bytes int64, longest int, rope model.Rope) []answer {
		rope.Theta = 100
		e := startParts(t, 1, func(pool *parallel.Pool, p model.Part) *model.Model {
			return changedLlama(t, pool, p, 256, func(c *model.Config) { c.Rope = &rope })
		}, func(c *engine.Config) { c.MaxModelLen, c.KVCacheBytes = longest, bytes }, nil)
		require.Equal(t, bytes < 1<<20, e.Config().MaxModelLen < 128)
		return ask(t, e, request("the end", 8))
	}
	answers := func(longest int, rope model.Rope) []answer { return answersIn(64<<20, longest, rope) }
	short, long := []float64{1, 2, 3, 4}, []float64{5, 6, 7, 8}
	both := model.Rope{Long: &model.LongRope{Short: short, Long: long, OriginalLength: 128}}
	require.Equal(t, answers(128, model.Rope{Factors: short}), answers(128, both))
	require.Equal(t, answers(129, model.Rope{Factors: long}), answers(129, both))
	require.NotEqual(t, answers(128, both), answers(129, both))
	require.Equal(t, answers(0, both), answersIn(64<<10, 0, both))
}

func TestBlocksOfSeveralGroupsAreNotOffloaded(t *testing.T) {
	pool := newPool(t, 1)
	m := hybridLlama(t, pool, model.Part{})
	c := engine.Config{KVCacheBytes: 1 << 20, Offload: &kvoffload.Config{}}
	_, err := c.Check(&m.Config, 1)
	require.ErrorIs(t, err, engine.ErrConfig)
	require.ErrorContains(t, err, "cannot be kept outside the process")
}
