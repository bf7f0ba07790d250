//go:build cgo

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/attention"
	"llmmemory/internal/kvstore"
)

func TestAPanicEndsInACodeAndTheStoreCanOnlyBeClosed(t *testing.T) {
	k := &store{groups: 1, groupOf: make([]int32, 1)}
	require.NoError(t, k.mapped(kvstore.Config{
		Shape: attention.Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: 8}, Layers: 1, NumBlocks: 1,
	}, 1))
	h := enterStore(k)
	calls := 0
	good := func(*store) error { calls++; return nil }
	require.Zero(t, withStore(h, good))
	require.EqualValues(t, internalCode, withStore(h, func(*store) error { panic("on purpose") }))
	require.EqualValues(t, internalCode, withStore(h, good))
	require.Zero(t, llm_kvstore_close(h))
	require.EqualValues(t, handleCode, withStore(h, good))
	require.Equal(t, 1, calls)
}
