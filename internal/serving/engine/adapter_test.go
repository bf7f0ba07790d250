package engine_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/kvoffload"
)

// Ensure that a request finds in the prefix cache and in tiers only blocks that were computed with its adapter.
func TestRequestsWithDifferentAdaptersShareNoBlocks(t *testing.T) {
	dir := t.TempDir()
	prompt := request(strings.Repeat(story, 3), 4)
	with := func(adapter int) engine.Request {
		r := prompt
		r.Adapter = adapter
		return r
	}
	open := func(adapters ...string) *engine.Engine {
		return startWorkers(t, 1, func(c *engine.Config) {
			tier, err := kvoffload.NewFolder(dir, kvoffload.NewSpace("model"), 1<<30)
			require.NoError(t, err)
			c.Hash, c.Offload = blockhash.CBOR("0"), &kvoffload.Config{Tier: tier, Stores: true, Loads: true}
			c.Adapters = adapters
		}, nil)
	}
	cached := func(e *engine.Engine, adapter int) int {
		s, err := e.Submit(with(adapter))
		require.NoError(t, err)
		read(t, s, 1)
		return s.CachedTokens()
	}
	whole := (len(prompt.Prompt) - 1) / 16 * 16
	first := open("a", "b")
	answers := map[string]bool{}
	for adapter := range 3 {
		answers[ask(t, first, with(adapter))[0].text] = true
	}
	require.Len(t, answers, 3, "adapters change answers")
	require.NoError(t, first.Close())
	require.NoError(t, os.RemoveAll(dir))
	first = open("a", "b")
	for adapter := range 3 {
		require.Zero(t, cached(first, adapter), "adapter %d", adapter)
		require.Equal(t, whole, cached(first, adapter), "adapter %d", adapter)
	}
	require.NoError(t, first.Close())
	second := open("a", "c")
	require.Equal(t, whole, cached(second, 0))
	require.Equal(t, whole, cached(second, 1))
	require.Zero(t, cached(second, 2), "the tier has no blocks of this adapter")
}

// sampled keeps the largest number of rows of a step that sample a token.
type sampled struct {
	engine.NoObserver
	largest int
}

func (s *sampled) Step(r engine.StepReport) { s.largest = max(s.largest, r.Sampled) }

func TestMaxLoRAsLimitsTheAdaptersOfAStep(t *testing.T) {
	o := &sampled{}
	e := startWorkers(t, 1, func(c *engine.Config) { c.MaxLoRAs = 1 }, o)
	var streams []*engine.Stream
	for i := range 8 {
		r := request(story, 40)
		r.Adapter, r.IgnoreEOS = 1+i%2, true
		s, err := e.Submit(r)
		require.NoError(t, err)
		streams = append(streams, s)
	}
	for _, s := range streams {
		read(t, s, 1)
	}
	require.NoError(t, e.Close())
	require.LessOrEqual(t, o.largest, 4, "the requests of one adapter")
}

func TestAdaptersThatDoNotExistAreRefused(t *testing.T) {
	e := startWorkers(t, 1, nil, nil)
	for _, adapter := range []int{-1, 3} {
		r := request(story, 1)
		r.Adapter = adapter
		_, err := e.Submit(r)
		require.ErrorContains(t, err, "There is no adapter")
	}
	requireIdle(t, e)
	pool := newPool(t, 1)
	m, err := engine.HandBuilt()
	require.NoError(t, err)
	_, err = engine.New(engine.Config{Model: m, Pool: pool, Adapters: []string{"a"}, KVCacheBytes: 1 << 20}, nil)
	require.ErrorIs(t, err, engine.ErrConfig)
}
