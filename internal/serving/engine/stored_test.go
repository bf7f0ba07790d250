package engine_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/kvoffload"
	"llmmemory/internal/testkit/level"
)

// A ledger is a tier in memory that counts repeated calls of Store. At random a ledger is slow, fails, claims to have
// a block that it does not have, or fails to load a block that it has.
type ledger struct {
	mu       sync.Mutex
	blocks   map[blockhash.Hash][]byte
	shown    map[blockhash.Hash]bool // those that can be loaded
	rnd      *rand.Rand
	repeated int // calls of Store for a block that the ledger already had
	changed  int // those of these calls whose contents differ from the block that the ledger had
}

var errLedger = errors.New("the ledger fails")

// trouble waits or returns an error at random. After an error, the engine does not use the tier for a
// second.
func (l *ledger) trouble() error {
	l.mu.Lock()
	wait, fails := l.rnd.IntN(8) == 0, l.rnd.IntN(64) == 0
	l.mu.Unlock()
	if wait {
		time.Sleep(3 * time.Millisecond)
	}
	if fails {
		return errLedger
	}
	return nil
}

func (l *ledger) Count(_ context.Context, blocks []blockhash.Hash) (n int, _ error) {
	if err := l.trouble(); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rnd.IntN(5) == 0 {
		return len(blocks), nil
	}
	for n < len(blocks) && l.shown[blocks[n]] {
		n++
	}
	return n, nil
}

func (l *ledger) Load(_ context.Context, blocks []blockhash.Hash, dst [][]byte) (n int, _ error) {
	if err := l.trouble(); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for n < len(blocks) && l.shown[blocks[n]] && l.rnd.IntN(40) > 0 {
		copy(dst[n], l.blocks[blocks[n]])
		n++
	}
	return n, nil
}

func (l *ledger) Store(_ context.Context, b blockhash.Hash, m kvoffload.Memory) error {
	if err := l.trouble(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.blocks[b]; old != nil {
		l.repeated++
		if !bytes.Equal(old, m.Block()) {
			l.changed++
		}
	} else {
		l.blocks[b] = slices.Clone(m.Block())
	}
	l.shown[b] = true
	return nil
}

func (l *ledger) Close() error { return nil }

// Ensure that tiers do not change answers. A block in a tier has the same contents as if its tokens were computed
// alone. The requests run in little memory with preemption, forks, drafts, cancelled requests and windows, and with a
// tier that fails at random.
func TestTiersChangeNoAnswersAndHaveTheBlocksOfTheirHashes(t *testing.T) {
	level.SkipNormal(t)
	const n = 40
	var loaded int64 // bytes
	counts := &counter{}
	for _, s := range []struct {
		name            string
		workers, window int
		dtype           attention.DType
		change          func(*engine.Config)
	}{
		{"one worker", 1, 0, attention.F32, nil},
		{"one step at a time", 1, 0, attention.F32, func(c *engine.Config) { c.NoAsyncScheduling = true }},
		{"two processes", 2, 0, attention.F32, nil},
		{"a window", 1, 20, attention.F32, nil},
		{"a window in large steps", 1, 20, attention.F32, func(c *engine.Config) { c.MaxNumBatchedTokens = 200 }},
		{"a window that leaves nothing to load", 1, 1, attention.F32, nil},
		{"Int8 and two workers", 2, 0, attention.Int8, func(c *engine.Config) { c.NumSpeculativeTokens = 3 }},
	} {
		t.Run(s.name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(30, 7))
			requests := make([]engine.Request, n)
			for i := range requests {
				requests[i] = randomRequest(rnd)
			}
			l := &ledger{blocks: map[blockhash.Hash][]byte{}, shown: map[blockhash.Hash]bool{}, rnd: rnd}
			config := func(c *engine.Config) {
				shape := attention.Shape{BlockSize: 8, NumKVHeads: 4, HeadSize: 8, DType: s.dtype}
				c.BlockSize, c.MaxModelLen, c.KVCacheDType = 8, 244, s.dtype
				c.KVCacheBytes = int64(61 * 2 * shape.BlockBytes())
				c.MaxNumBatchedTokens, c.MaxNumSeqs = 40, 20
				c.Hash = blockhash.CBOR("0")
				c.Offload = &kvoffload.Config{Tier: l, Stores: true}
			}
			alone := startWindowed(t, startWorkers, s.workers, s.window, func(c *engine.Config) {
				config(c)
				c.NoAsyncScheduling = true
			}, nil)
			want := make([]string, n)
			for i, r := range requests {
				want[i] = transcript(t, alone, r)
			}
			require.NoError(t, alone.Close())
			require.NotEmpty(t, l.blocks)
			start := startFunc(startWorkers)
			if s.name == "two processes" {
				start = startProcesses
			}
			for round := range 2 {
				if round%2 == 0 { // the round after it loads what it stores
					clear(l.shown)
				}
				e := startWindowed(t, start, s.workers, s.window, func(c *engine.Config) {
					config(c)
					c.Offload.Loads = true
					if s.change != nil {
						s.change(c)
					}
				}, counts)
				got := make([]string, n)
				var wait sync.WaitGroup
				for i, r := range requests {
					wait.Go(func() { got[i] = transcript(t, e, r) })
					if i%4 == 0 {
						wait.Go(func() { cancelled(t, e, requests[(i+1)%n], want[(i+1)%n], 0) })
					}
				}
				wait.Wait()
				require.NoError(t, e.Close())
				requireIdle(t, e)
				require.Equal(t, want, got)
				stats, _ := e.OffloadStats()
				loaded += stats.LoadedBytes
			}
			require.NotZero(t, l.repeated)
			require.Zero(t, l.changed)
		})
	}
	require.NotZero(t, loaded, "nothing was loaded")
	require.NotZero(t, counts.preempted.Load(), "no request was preempted")
}

// startWindowed starts an engine of n workers or processes with a random model. Each token attends to the tokens in
// a window of the given size, or to all tokens if the size is 0.
func startWindowed(
	t *testing.T, start startFunc, n, window int, change func(*engine.Config), o engine.Observer,
) *engine.Engine {
	return start(t, n, func(c *engine.Config) {
		c.Model.SlidingWindow = window
		for _, p := range c.Peers {
			p.Model.SlidingWindow = window
		}
		change(c)
	}, o)
}
