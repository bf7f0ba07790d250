//go:build cgo

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/vllm/v1/kvcache"
	"llmmemory/internal/vllm/v1/sched"
)

// What C sees is tested in capi/guest; these are the codes that only a mistake
// of the library can show.
const internalCode, handleCode = -13, -1

func TestAPanicEndsInACodeAndTheCacheCanOnlyBeClosed(t *testing.T) {
	s, err := sched.New(sched.Config{MaxNumSeqs: 1, MaxNumBatchedTokens: 8, Cache: kvcache.Config{
		NumGPUBlocks: 4, Groups: []kvcache.Group{{Kind: kvcache.Full, BlockSize: 4}}, MaxModelLen: 8,
	}})
	require.NoError(t, err)
	h, err := enter(&cache{s: s, groups: 1})
	require.NoError(t, err)
	calls := 0
	good := func(*cache) error { calls++; return nil }
	require.Zero(t, with(h, good))
	require.EqualValues(t, internalCode, with(h, func(*cache) error { panic("on purpose") }))
	require.EqualValues(t, internalCode, with(h, good))
	require.Zero(t, llm_cache_close(h))
	require.EqualValues(t, handleCode, with(h, good))
	require.Equal(t, 1, calls)
}
