package kvoffload_test

import (
	"bytes"
	"context"
	"errors"
	"log"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/serving/kvoffload"
)

type slow struct {
	*kvoffload.Folder
	gate chan struct{}
	err  error
}

func (s *slow) wait(ctx context.Context) error {
	select {
	case <-s.gate:
		return s.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *slow) Store(ctx context.Context, b blockhash.Hash, m kvoffload.Memory) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	return s.Folder.Store(ctx, b, m)
}

func (s *slow) Load(ctx context.Context, blocks []blockhash.Hash, dst [][]byte) (int, error) {
	if err := s.wait(ctx); err != nil {
		return 0, err
	}
	return s.Folder.Load(ctx, blocks, dst)
}

func (s *slow) Count(ctx context.Context, blocks []blockhash.Hash) (int, error) {
	if err := s.wait(ctx); err != nil {
		return 0, err
	}
	return s.Folder.Count(ctx, blocks)
}

func newSlow(t *testing.T) *slow {
	return &slow{Folder: newFolder(t, t.TempDir(), 1<<20), gate: make(chan struct{})}
}

func start(t *testing.T, tier kvoffload.Tier, queued int) *kvoffload.Offloader {
	t.Helper()
	o := kvoffload.New(kvoffload.Config{Tier: tier, BlockBytes: blockBytes, Stores: true, Loads: true, QueueBytes: queued * blockBytes})
	t.Cleanup(func() { _ = o.Close() })
	return o
}

func offer(o *kvoffload.Offloader, blocks []blockhash.Hash) {
	for i, b := range blocks {
		o.Offer(b, func(dst []byte) { copy(dst, content(i)) })
	}
}

// Ensure that dropped blocks are stored when they are offered again.
func TestAQueueThatIsFullDropsBlocks(t *testing.T) {
	tier := newSlow(t)
	o := start(t, tier, 10)
	offer(o, named(30))
	require.EqualValues(t, 20, o.Stats().Dropped)
	close(tier.gate)
	for o.Stats().StoredBytes < 10*blockBytes {
		time.Sleep(time.Millisecond)
	}
	for round := 0; o.Stats().StoredBytes < 30*blockBytes; round++ {
		offer(o, named(30))
		time.Sleep(time.Millisecond)
	}
	offer(o, named(30))
	require.NoError(t, o.Close())
	require.EqualValues(t, 30*blockBytes, o.Stats().StoredBytes, "each once")
	requireLoads(t, tier.Folder, named(30), 30)
}

func load(o *kvoffload.Offloader, blocks []blockhash.Hash, compute time.Duration) (n int, data [][]byte) {
	var wait sync.WaitGroup
	wait.Add(1)
	data = make([][]byte, len(blocks))
	o.Load(blocks, compute, func(i int, d [][]byte) { copy(data[i:], d) }, func(came int) {
		n = came
		wait.Done()
	})
	wait.Wait()
	return n, data
}

func TestALoadReadsWhatWasStored(t *testing.T) {
	o := start(t, newFolder(t, t.TempDir(), 1<<20), 100)
	offer(o, named(50))
	storedBytes(t, o, 50)
	require.Equal(t, 50, o.Find(named(60), 0))
	n, data := load(o, named(60), 0)
	require.Equal(t, 50, n)
	for i := range n {
		require.Equal(t, content(i), data[i])
	}
	require.EqualValues(t, 50*blockBytes, o.Stats().LoadedBytes)
}

// Ensure that a load returns no blocks if it takes longer than computing them.
func TestALoadThatTakesTooLongIsGivenUp(t *testing.T) {
	tier := newSlow(t)
	storeAll(t, tier.Folder, named(5))
	o := start(t, tier, 10)
	require.Zero(t, o.Find(named(5), 30*time.Millisecond))
	n, _ := load(o, named(5), 30*time.Millisecond)
	require.Zero(t, n)
	require.EqualValues(t, 2, o.Stats().Failures)
	close(tier.gate)
	n, _ = load(o, named(5), time.Minute)
	require.Equal(t, 5, n)
}

// patient is a folder whose search takes the time that it needs, so that a busy machine does not end it.
type patient struct{ *kvoffload.Folder }

func (p patient) Count(_ context.Context, blocks []blockhash.Hash) (int, error) {
	return p.Folder.Count(context.Background(), blocks)
}

func TestWhatIsFasterToComputeIsNotLoaded(t *testing.T) {
	var said bytes.Buffer
	o := kvoffload.New(kvoffload.Config{
		Tier: patient{newFolder(t, t.TempDir(), 1<<20)}, BlockBytes: blockBytes, Stores: true, Loads: true, Log: log.New(&said, "", 0),
	})
	defer o.Close()
	offer(o, named(10))
	storedBytes(t, o, 10)
	require.Zero(t, o.Stats().LoadRate)
	n, _ := load(o, named(10), 0)
	require.Equal(t, 10, n) // now its rate is known
	require.Positive(t, o.Stats().LoadRate)
	require.Zero(t, o.Find(named(10), 1))
	require.EqualValues(t, 10, o.Stats().Computed)
	require.Contains(t, said.String(), "10 blocks are computed, in about 1ns")
	require.Equal(t, 10, o.Find(named(10), time.Hour))
}

func TestFailuresAreLoggedOnceAMinute(t *testing.T) {
	tier := newSlow(t)
	tier.err = errors.New("the tier is gone")
	close(tier.gate)
	var said bytes.Buffer
	o := kvoffload.New(kvoffload.Config{Tier: tier, BlockBytes: blockBytes, Stores: true, Loads: true, Log: log.New(&said, "", 0)})
	for range 20 {
		require.Zero(t, o.Find(named(3), 0))
		n, _ := load(o, named(3), 0)
		require.Zero(t, n)
	}
	offer(o, named(3))
	require.NoError(t, o.Close())
	require.Greater(t, o.Stats().Failures, int64(20))
	lines := strings.SplitAfter(strings.TrimSuffix(said.String(), "\n"), "\n")
	require.Len(t, lines, 3, said.String())
	for i, doing := range []string{"looking for", "loading", "storing"} {
		require.Contains(t, lines[i], doing+" keys and values: the tier is gone")
	}
}

func TestAProducerLoadsNothingAndAConsumerStoresNothing(t *testing.T) {
	dir := t.TempDir()
	producer := kvoffload.New(kvoffload.Config{Tier: newFolder(t, dir, 1<<20), BlockBytes: blockBytes, Stores: true})
	offer(producer, named(3))
	require.Zero(t, producer.Find(named(3), 0))
	require.NoError(t, producer.Close())
	consumer := kvoffload.New(kvoffload.Config{Tier: newFolder(t, dir, 1<<20), BlockBytes: blockBytes, Loads: true})
	offer(consumer, named(9))
	require.Equal(t, 3, consumer.Find(named(9), 0))
	require.NoError(t, consumer.Close())
	require.Len(t, files(t, dir), 3)
}

func TestAChainStoresInAllAndLoadsFromTheFirst(t *testing.T) {
	blocks := named(10)
	fast, far := newFolder(t, t.TempDir(), 1<<20), newFolder(t, t.TempDir(), 1<<20)
	chain := kvoffload.Chain{fast, far}
	storeAll(t, fast, blocks[:4])
	storeAll(t, chain, blocks[:2])
	for i := range blocks {
		require.NoError(t, far.Store(t.Context(), blocks[i], memoryOf(content(i))))
	}
	requireLoads(t, chain, blocks, 10)
	requireLoads(t, far, blocks, 10)
}

// Ensure that blocks are stored again if a tier has lost them. The Offloader learns of the loss when Find or Load does
// not find them.
func TestBlocksThatAreGoneAreStoredAgain(t *testing.T) {
	for name, notice := range map[string]func(o *kvoffload.Offloader, blocks []blockhash.Hash){
		"looking": func(o *kvoffload.Offloader, blocks []blockhash.Hash) { require.Zero(t, o.Find(blocks, 0)) },
		"loading": func(o *kvoffload.Offloader, blocks []blockhash.Hash) {
			n, _ := load(o, blocks, 0)
			require.Zero(t, n)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			o := start(t, newFolder(t, dir, 1<<20), 10)
			offer(o, named(3))
			storedBytes(t, o, 3)
			require.NoError(t, os.RemoveAll(dir))
			notice(o, named(3))
			offer(o, named(3))
			storedBytes(t, o, 6)
			require.Equal(t, 3, o.Find(named(3), 0))
		})
	}
}

// A process does not load a block from the tier while the block is in its own cache. The tier would therefore remove
// the block as unused. Ensure that such a block is stored again after some time.
func TestBlocksInUseAreStoredAgainAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		o := kvoffload.New(kvoffload.Config{
			Tier: newFolder(t, dir, 1<<20), BlockBytes: blockBytes, Stores: true, KnownFor: 9 * time.Minute,
		})
		for range 5 {
			offer(o, named(3))
			time.Sleep(time.Minute)
		}
		require.EqualValues(t, 3*blockBytes, o.Stats().StoredBytes)
		require.NoError(t, os.RemoveAll(dir))
		for range 3 {
			time.Sleep(9 * time.Minute)
			offer(o, named(3))
		}
		require.NoError(t, o.Close())
		require.Len(t, files(t, dir), 3)
	})
}

func TestABlockIsStoredAgainAfterALongTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		o := kvoffload.New(kvoffload.Config{Tier: newFolder(t, dir, 1<<20), BlockBytes: blockBytes, Stores: true})
		offer(o, named(3))
		time.Sleep(time.Hour)
		require.NoError(t, os.RemoveAll(dir))
		offer(o, named(3))
		require.NoError(t, o.Close())
		require.Len(t, files(t, dir), 3)
	})
}

// Ensure that Find waits only a short time, even if computing the blocks takes a long time.
func TestLookingTakesLittleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := kvoffload.New(kvoffload.Config{Tier: newSlow(t), BlockBytes: blockBytes, Loads: true})
		begin := time.Now()
		require.Zero(t, o.Find(named(3), time.Hour))
		require.LessOrEqual(t, time.Since(begin), 2*time.Second)
		require.NoError(t, o.Close())
	})
}

func storedBytes(t *testing.T, o *kvoffload.Offloader, blocks int64) {
	t.Helper()
	require.Eventually(t, func() bool { return o.Stats().StoredBytes == blocks*blockBytes }, time.Minute, time.Millisecond)
}
