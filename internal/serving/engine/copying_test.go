package engine

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/kvoffload"
)

// A shelf is a tier in memory. It keeps the first contents that it gets for each block, and loads
// nothing.
type shelf struct {
	kvoffload.Chain // loads nothing
	mu              sync.Mutex
	blocks          map[blockhash.Hash][]byte
}

func (s *shelf) Store(_ context.Context, b blockhash.Hash, m kvoffload.Memory) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blocks[b] == nil {
		s.blocks[b] = slices.Clone(m.Block())
	}
	return nil
}

// Ensure that the engine accepts requests, cancels requests and returns statistics while it copies a block to a tier.
// The copy must have the block's contents even if the request is cancelled during the copy and other requests need its
// blocks.
func TestNothingWaitsWhileABlockIsCopied(t *testing.T) {
	e := startRelayed(t, &relay{}, func(c *Config) { c.BlockSize = 8 })
	blockBytes := e.config.KVCacheBytes / int64(e.Load().Blocks+1)
	long := func(first int32) Request {
		r := Request{Prompt: []int32{first}, MaxTokens: 40, IgnoreEOS: true, Params: sampling.Default()}
		for i := range int32(59) {
			r.Prompt = append(r.Prompt, 'a'+i%20)
		}
		r.Temperature = 0
		return r
	}
	begin := func(t *testing.T, noAsync bool) (*Engine, *shelf) {
		tier := &shelf{blocks: map[blockhash.Hash][]byte{}}
		return startRelayed(t, &relay{}, func(c *Config) {
			c.Hash, c.BlockSize, c.MaxModelLen, c.NoAsyncScheduling = blockhash.CBOR("0"), 8, 100, noAsync
			c.NoPrefixCaching, c.KVCacheBytes = true, 14*blockBytes // a request takes 13
			c.Offload = &kvoffload.Config{Tier: tier, Stores: true}
		}), tier
	}
	for _, noAsync := range []bool{true, false} {
		t.Run(fmt.Sprintf("NoAsyncScheduling %v", noAsync), func(t *testing.T) {
			e, undisturbed := begin(t, noAsync)
			for _, first := range []int32{'x', 'y', 'z'} {
				s, err := e.Submit(long(first))
				require.NoError(t, err)
				_, err = answer(t, s)
				require.NoError(t, err)
			}
			require.NoError(t, e.Close())

			e, disturbed := begin(t, noAsync)
			copying, goOn := make(chan struct{}), make(chan struct{})
			release := sync.OnceFunc(func() { close(goOn) })
			t.Cleanup(release)
			read, first := e.offload.read, true
			e.offload.read = func(id int32, data []byte) {
				if first {
					first = false
					close(copying)
					<-goOn
				}
				read(id, data)
			}
			x, err := e.Submit(long('x'))
			require.NoError(t, err)
			<-copying
			if !e.mu.TryLock() {
				release()
				require.Fail(t, "the engine is locked while a block is copied")
			}
			e.mu.Unlock()
			y, err := e.Submit(long('y'))
			require.NoError(t, err)
			z, err := e.Submit(long('z'))
			require.NoError(t, err)
			require.Positive(t, e.Load().Waiting)
			_, ok := e.OffloadStats()
			require.True(t, ok)
			z.Cancel()
			x.Cancel()
			release()
			_, err = answer(t, x)
			require.ErrorIs(t, err, ErrCanceled)
			_, err = answer(t, y)
			require.NoError(t, err)
			require.NoError(t, e.Close())
			require.Greater(t, len(disturbed.blocks), 10)
			for hash, block := range disturbed.blocks {
				require.True(t, bytes.Equal(undisturbed.blocks[hash], block), "block %x", hash[:4])
			}
		})
	}
}
