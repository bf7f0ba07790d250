package kvevents

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"

	"llmmemory/internal/vllm/blockhash"
)

// What llm-d's KV-cache indexer decodes (llm-d/llm-d-kv-cache, commit 0d2ae546,
// pkg/kvevents/engineadapter): a batch and events as arrays, with these fields in
// this order and no others.
type (
	indexerBatch struct {
		_      struct{} `msgpack:",array"`
		TS     float64
		Events []msgpack.RawMessage
		Rank   *int
	}
	indexerStored struct {
		_         struct{} `msgpack:",array"`
		Tag       string
		Hashes    []any // 64 bits, or bytes of which the last 8 count
		Parent    any
		Tokens    []uint32
		BlockSize int
		LoRAID    *int
		Medium    *string
		LoRAName  *string
	}
	indexerRemoved struct {
		_      struct{} `msgpack:",array"`
		Tag    string
		Hashes []any
		Medium *string
	}
)

// What vLLM's examples/features/kv_events/kv_events_subscriber.py decodes at the
// commit of RULES.md: events as maps, whose field `type` says what they are.
type subscriberStored struct {
	Type      string   `msgpack:"type"`
	Hashes    []any    `msgpack:"block_hashes"`
	Parent    any      `msgpack:"parent_block_hash"`
	Tokens    []uint32 `msgpack:"token_ids"`
	BlockSize int      `msgpack:"block_size"`
	LoRAID    *int     `msgpack:"lora_id"`
	Medium    *string  `msgpack:"medium"`
	LoRAName  *string  `msgpack:"lora_name"`
	Extra     [][]any  `msgpack:"extra_keys"`
	Group     *int     `msgpack:"group_idx"`
	Kind      *string  `msgpack:"kv_cache_spec_kind"`
	Window    *int     `msgpack:"kv_cache_spec_sliding_window"`
	Locality  *string  `msgpack:"locality"`
}

func low64(t *testing.T, raw any) uint64 {
	if hash, ok := raw.([]byte); ok {
		require.Len(t, hash, 32)
		return binary.BigEndian.Uint64(hash[24:])
	}
	switch v := raw.(type) {
	case uint64:
		return v
	case int8:
		return uint64(v)
	case int64:
		return uint64(v)
	}
	require.Failf(t, "a hash", "%T", raw)
	return 0
}

func batch(t *testing.T, e Encoder, extras blockhash.Extras, group uint32) indexerBatch {
	var b indexerBatch
	require.NoError(t, msgpack.Unmarshal(e.AppendBatch(nil, 1.5, events(t, extras, group)), &b))
	require.InDelta(t, 1.5, b.TS, 0)
	require.Equal(t, 3, *b.Rank)
	require.Len(t, b.Events, 4)
	return b
}

func TestAnIndexerThatReadsByPositionReadsArrays(t *testing.T) {
	for _, ints := range []bool{false, true} {
		for group := range uint32(len(layers)) {
			b := batch(t, Encoder{Groups: layers, DataParallelRank: 3, Arrays: true, IntHashes: ints}, blockhash.Extras{LoRA: "fine"}, group)
			var first, second indexerStored
			require.NoError(t, msgpack.Unmarshal(b.Events[0], &first))
			require.NoError(t, msgpack.Unmarshal(b.Events[1], &second))
			require.Equal(t, "BlockStored", first.Tag)
			require.Nil(t, first.Parent)
			require.EqualValues(t, 1, low64(t, first.Hashes[0]))
			require.EqualValues(t, 1, low64(t, second.Parent))
			require.EqualValues(t, uint64(1)<<63+2, low64(t, second.Hashes[0]))
			require.Equal(t, []uint32{1, 200}, first.Tokens)
			require.Equal(t, []uint32{70000, 4}, second.Tokens)
			require.Equal(t, 2, first.BlockSize)
			require.Equal(t, 7, *first.LoRAID)
			require.Equal(t, "GPU", *first.Medium)
			require.Equal(t, "fine", *first.LoRAName)
			var removed indexerRemoved
			require.NoError(t, msgpack.Unmarshal(b.Events[2], &removed))
			require.Equal(t, "BlockRemoved", removed.Tag)
			require.EqualValues(t, 1, low64(t, removed.Hashes[0]))
			require.Equal(t, "GPU", *removed.Medium)
			var cleared []any
			require.NoError(t, msgpack.Unmarshal(b.Events[3], &cleared))
			require.Equal(t, []any{"AllBlocksCleared"}, cleared)
		}
	}
}

func TestVLLMsSubscriberReadsMaps(t *testing.T) {
	extras := blockhash.Extras{Salt: "s", Items: []blockhash.Item{{Identifier: "cat", Offset: 1, Length: 2}}}
	b := batch(t, Encoder{Groups: layers, DataParallelRank: 3}, extras, 1)
	var first subscriberStored
	require.NoError(t, msgpack.Unmarshal(b.Events[0], &first))
	require.Equal(t, "BlockStored", first.Type)
	require.Nil(t, first.Parent)
	require.EqualValues(t, 1, low64(t, first.Hashes[0]))
	require.Equal(t, []uint32{1, 200}, first.Tokens)
	require.Equal(t, [][]any{{[]any{"cat", int8(1)}, "s"}}, first.Extra)
	require.Equal(t, 1, *first.Group)
	require.Equal(t, "sliding_window", *first.Kind)
	require.Equal(t, 300, *first.Window)
	require.Nil(t, first.LoRAID)
	require.Nil(t, first.Locality)
	var removed, cleared map[string]any
	require.NoError(t, msgpack.Unmarshal(b.Events[2], &removed))
	require.Equal(t, "BlockRemoved", removed["type"])
	require.NoError(t, msgpack.Unmarshal(b.Events[3], &cleared))
	require.Equal(t, map[string]any{"type": "AllBlocksCleared"}, cleared)
}
