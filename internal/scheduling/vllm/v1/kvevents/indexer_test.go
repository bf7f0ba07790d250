package kvevents

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/pool"
)

// An indexerBatch decodes a batch as llm-d's KV-cache indexer does (llm-d/llm-d-kv-cache, commit
// 7be76e1, pkg/kvevents/engineadapter/vllm_adapter.go). A batch is an array. An event is an array of
// up to 12 fields, which the indexer reads by position. Fields at the end may be missing.
type indexerBatch struct {
	_      struct{} `msgpack:",array"`
	TS     float64
	Events []msgpack.RawMessage
	Rank   *int
}

func fields(t *testing.T, event []byte) []any {
	var all []any
	require.NoError(t, msgpack.Unmarshal(event, &all))
	return all
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
	kinds := []string{"full_attention", "sliding_window", "mamba", "chunked_local_attention"}
	extras := blockhash.Extras{LoRA: "fine", Salt: "s", Items: []blockhash.Item{{Identifier: "cat", Offset: 1, Length: 2}}}
	for _, ints := range []bool{false, true} {
		for group := range uint32(len(layers)) {
			b := batch(t, Encoder{Groups: layers, DataParallelRank: 3, Arrays: true, IntHashes: ints}, extras, group)
			first, second := fields(t, b.Events[0]), fields(t, b.Events[1])
			require.EqualValues(t, 1, low64(t, first[1].([]any)[0]))
			require.EqualValues(t, 1, low64(t, second[2]))
			require.EqualValues(t, uint64(1)<<63+2, low64(t, second[1].([]any)[0]))
			require.EqualValues(t, []any{uint32(70000), int8(4)}, second[3])
			want := []any{
				"BlockStored", first[1], nil, []any{int8(1), uint8(200)}, int8(2), int8(7), "GPU", "fine",
				[]any{[]any{"fine", []any{"cat", int8(1)}, "s"}}, int8(group), kinds[group],
			}
			if kinds[group] == "sliding_window" {
				want = append(want, uint16(300))
			}
			require.Equal(t, want, first)
			removed := fields(t, b.Events[2])
			require.EqualValues(t, 1, low64(t, removed[1].([]any)[0]))
			require.Equal(t, []any{"BlockRemoved", removed[1], "GPU", int8(group)}, removed)
			require.Equal(t, []any{"AllBlocksCleared"}, fields(t, b.Events[3]))
		}
	}
}

// Ensure that a BlockStored event without hashes has an empty field where other events have their extra keys, so that
// the later fields keep their positions. An event has no hashes if none of its blocks can be hit.
func TestAnIndexerThatReadsByPositionReadsBlocksWithoutHashes(t *testing.T) {
	all := &pool.Events{List: []pool.Event{{Kind: pool.Stored, BlockSize: 2, Group: 1}}}
	var b indexerBatch
	require.NoError(t, msgpack.Unmarshal((&Encoder{Groups: layers, Arrays: true}).AppendBatch(nil, 1.5, all), &b))
	want := []any{"BlockStored", []any{}, nil, []any{}, int8(2), nil, "GPU", nil, nil, int8(1), "sliding_window", uint16(300)}
	require.Equal(t, want, fields(t, b.Events[0]))
}
