package engine_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/engine"
	"llmmemory/internal/kvoffload"
	"llmmemory/internal/vllm/blockhash"
)

// startTiered makes an engine that keeps blocks in a folder.
func startTiered(t testing.TB, dir string, change func(*engine.Config)) *engine.Engine {
	t.Helper()
	tier, err := kvoffload.NewFolder(dir, kvoffload.NewSpace("demo"), 1<<30)
	require.NoError(t, err)
	return startWithTier(t, tier, change)
}

func startWithTier(t testing.TB, tier kvoffload.Tier, change func(*engine.Config)) *engine.Engine {
	return start(t, func(c *engine.Config) {
		c.Hash = blockhash.CBOR("0")
		c.Offload = &kvoffload.Config{Tier: tier, Stores: true, Loads: true}
		if change != nil {
			change(c)
		}
	})
}

// long is a prompt of many blocks, whose answer depends on its first ones.
func long() string {
	text := story
	for range 20 {
		text += "Some other words that say nothing. "
	}
	return text + "The code of the vault"
}

// stored waits until nothing waits to be stored.
func stored(t testing.TB, e *engine.Engine) kvoffload.Stats {
	t.Helper()
	for {
		stats, ok := e.OffloadStats()
		require.True(t, ok)
		if stats.Queued == 0 {
			return stats
		}
		time.Sleep(time.Millisecond)
	}
}

func TestAnEngineLoadsWhatAnotherHasComputed(t *testing.T) {
	dir := t.TempDir()
	for _, speculative := range []int{0, 3} {
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

// Of many requests that share a prompt, one loads it.
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

// Whatever has happened to the files, the answer is the same.
func TestDamagedFilesCostTimeOnly(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, dir string, files []string){
		"a flipped bit": func(t *testing.T, _ string, files []string) {
			for _, f := range files {
				text, err := os.ReadFile(f)
				require.NoError(t, err)
				text[len(text)/2] ^= 1
				require.NoError(t, os.WriteFile(f, text, 0o600))
			}
		},
		"one truncated file": func(t *testing.T, _ string, files []string) {
			require.NoError(t, os.Truncate(files[len(files)/2], 100))
		},
		"an empty file": func(t *testing.T, _ string, files []string) { require.NoError(t, os.Truncate(files[0], 0)) },
		"blocks of other tokens": func(t *testing.T, _ string, files []string) {
			for i := range len(files) - 1 {
				require.NoError(t, os.Rename(files[i+1], files[i]))
			}
		},
		"no folder": func(t *testing.T, dir string, _ []string) { require.NoError(t, os.RemoveAll(dir)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first := startTiered(t, dir, nil)
			want := ask(t, first, request(long(), 10))[0]
			stored(t, first)
			require.NoError(t, first.Close())
			files, err := filepath.Glob(filepath.Join(dir, "*", "??", "*"))
			require.NoError(t, err)
			require.NotEmpty(t, files)
			second := startTiered(t, dir, nil)
			damage(t, dir, files)
			for range 2 {
				require.Equal(t, want, ask(t, second, request(long(), 10))[0])
			}
			requireIdle(t, second)
			require.NoError(t, second.Close())
			third := startTiered(t, dir, nil) // finds what the second has stored anew
			require.Equal(t, want, ask(t, third, request(long(), 10))[0])
			stats, _ := third.OffloadStats()
			require.Positive(t, stats.LoadedBytes)
			require.Zero(t, stats.Failures)
		})
	}
}
