package engine_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/kvoffload"
	"llmmemory/internal/testkit/level"
)

func init() { level.CollectLess() }

// startTiered makes an engine that keeps blocks in a folder.
func startTiered(t testing.TB, dir string, change func(*engine.Config)) *engine.Engine {
	return start(t, func(c *engine.Config) {
		keepIn(c, openTier(t, dir))
		if change != nil {
			change(c)
		}
	})
}

// openTier opens a folder as a tier for blocks of the test's model.
func openTier(t testing.TB, dir string) kvoffload.Tier {
	tier, err := kvoffload.NewFolder(dir, kvoffload.NewSpace("model"), 1<<30)
	require.NoError(t, err)
	return tier
}

// keepIn makes an engine store blocks in a tier and load them.
func keepIn(c *engine.Config, tier kvoffload.Tier) {
	c.Hash, c.Offload = blockhash.CBOR("0"), &kvoffload.Config{Tier: tier, Stores: true, Loads: true}
}

// long returns a prompt of many blocks. The answer to it depends on the first blocks.
func long() string {
	text := story
	for range 20 {
		text += "Some other words that say nothing. "
	}
	return text + "The code of the vault"
}

func TestAnEngineLoadsWhatAnotherHasComputed(t *testing.T) {
	dir := t.TempDir()
	for _, speculative := range level.First(1, []int{0, 3}) {
		plain := ask(t, start(t, nil), request(long(), 10))[0]
		first := startTiered(t, dir, nil)
		require.Equal(t, plain, ask(t, first, request(long(), 10))[0])
		require.NoError(t, first.Close())

		second := startTiered(t, dir, func(c *engine.Config) { c.NumSpeculativeTokens = speculative })
		s, err := second.Submit(request(long(), 10))
		require.NoError(t, err)
		require.Equal(t, plain, read(t, s, 1)[0])
		blocks := (len(long()) - 1) / 16
		require.Equal(t, 16*blocks, s.CachedTokens())
		stats, _ := second.OffloadStats()
		require.Positive(t, stats.LoadedBytes)
		require.Zero(t, stats.LoadedBytes%int64(blocks))
		requireIdle(t, second)
		require.NoError(t, second.Close())
	}
}

// Ensure that of many requests with the same prompt, only one loads the prompt's blocks.
func TestASharedPromptIsLoadedOnce(t *testing.T) {
	dir := t.TempDir()
	first := startTiered(t, dir, nil)
	want := ask(t, first, request(long(), 10))[0]
	require.NoError(t, first.Close())

	second := startTiered(t, dir, nil)
	var wait sync.WaitGroup
	for range 16 {
		wait.Go(func() { require.Equal(t, want, ask(t, second, request(long(), 10))[0]) })
	}
	wait.Wait()
	stats, _ := second.OffloadStats()
	blockBytes := second.Config().KVCacheBytes / int64(second.Load().Blocks+1)
	require.LessOrEqual(t, stats.LoadedBytes, int64((len(long())-1)/16)*blockBytes)
	requireIdle(t, second)
}

// Ensure that workers in one process and workers in several processes store the same bytes, and can load each
// other's blocks.
func TestProcessesStoreWhatWorkersStore(t *testing.T) {
	for _, n := range []int{2, 4} {
		start := []startFunc{startWorkers, startProcesses}
		var files [2]map[string]string
		var answers [2]string
		for i := range start {
			dir := t.TempDir()
			for j, first := range []int{i, 1 - i} { // the second loads
				e := start[first](t, n, func(c *engine.Config) {
					c.BlockSize, c.KVCacheBytes = 8, 1<<20
					keepIn(c, openTier(t, dir))
				}, nil)
				answer := transcript(t, e, request(long()[:300], 20))
				require.NoError(t, e.Close())
				stats, _ := e.OffloadStats()
				if j == 0 {
					files[i], answers[i] = contents(t, dir), answer
					require.Zero(t, stats.LoadedBytes)
				} else {
					require.Equal(t, answers[i], answer)
					require.EqualValues(t, 37*8*2*2*4*8*4, stats.LoadedBytes, "37 blocks of 8 tokens")
				}
			}
		}
		require.NotEmpty(t, files[0])
		require.Equal(t, files[0], files[1], "%d workers and %d processes", n, n)
		require.Equal(t, answers[0], answers[1])
	}
}

// A held tier signals when a load begins, and then waits until the test allows the load.
type held struct {
	kvoffload.Tier
	loads, allowed chan struct{}
}

func (h held) Load(_ context.Context, blocks []blockhash.Hash, dst [][]byte) (int, error) {
	h.loads <- struct{}{}
	<-h.allowed
	return h.Tier.Load(context.Background(), blocks, dst)
}

// Ensure that a request can be cancelled, and an engine closed, while a load waits for the end of a step. If
// the engine has several processes, each load must wait for the end of a step before it writes blocks.
func TestABlockThatWaitsForAStepOfProcessesHoldsNothingUp(t *testing.T) {
	dir := t.TempDir()
	r := request(long()[:300], 8)
	startHeld := func(h held, broadcast func()) *engine.Engine {
		h.Tier = openTier(t, dir)
		return startHeldProcesses(t, 2, broadcast, func(c *engine.Config) {
			c.BlockSize, c.KVCacheBytes = 8, 1<<20
			keepIn(c, h)
		}, nil)
	}
	first := startHeld(held{}, nil)
	want := transcript(t, first, r)
	require.NoError(t, first.Close())
	for _, test := range []struct{ cancel, close, late bool }{ // late: the tier reads after the last step
		{cancel: true}, {close: true}, {cancel: true, close: true}, {close: true, late: true},
	} {
		t.Run(fmt.Sprintf("%+v", test), func(t *testing.T) {
			h := held{loads: make(chan struct{}, 2), allowed: make(chan struct{})}
			var step sync.Mutex
			e := startHeld(h, func() {
				step.Lock()
				defer step.Unlock()
			})
			other, err := e.Submit(request("another one", 200))
			require.NoError(t, err)
			loading, err := e.Submit(r)
			require.NoError(t, err)
			<-h.loads
			step.Lock() // the next message waits
			ended := make(chan error)
			if test.cancel {
				loading.Cancel()
			}
			if test.close {
				go func() { ended <- e.Close() }()
			}
			allow := sync.OnceFunc(func() { close(h.allowed) })
			if !test.late {
				allow()
			}
			time.Sleep(20 * time.Millisecond) // the blocks wait now; without it the test shows less
			step.Unlock()
			time.Sleep(20 * time.Millisecond) // the loop has ended; the same
			allow()
			if test.close {
				require.NoError(t, <-ended)
				requireIdle(t, e)
				return
			}
			require.Equal(t, want, transcript(t, e, r)) // it loads again
			other.Cancel()
		})
	}
}

// contents are the files of a folder, by name.
func contents(t *testing.T, dir string) map[string]string {
	all := map[string]string{}
	paths, err := filepath.Glob(filepath.Join(dir, "*", "??", "*"))
	require.NoError(t, err)
	for _, p := range paths {
		text, err := os.ReadFile(p)
		require.NoError(t, err)
		all[strings.TrimPrefix(p, dir)] = string(text)
	}
	return all
}
