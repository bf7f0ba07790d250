package kvevents

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/scheduling/vllm/v1/pool"
)

var layers = []kvcache.Group{
	{Kind: kvcache.Full, BlockSize: 2}, {Kind: kvcache.SlidingWindow, BlockSize: 2, Window: 300},
	{Kind: kvcache.Mamba, BlockSize: 2}, {Kind: kvcache.ChunkedLocal, BlockSize: 2, Chunk: 4},
}

// events returns the events of a request of 5 tokens in blocks of 2, followed by those of an eviction and of a reset.
func events(t *testing.T, extras blockhash.Extras, group uint32) *pool.Events {
	p, err := pool.New(pool.Config{NumGPUBlocks: 4, EnableCaching: true, HashBlockSize: 2, EnableEvents: true})
	require.NoError(t, err)
	content := &pool.Content{Tokens: []int32{1, 200, 70000, 4, 5}, Extras: extras, LoRAID: 7}
	content.Extend(blockhash.LE{}, 2)
	content.Hashes[0], content.Hashes[1] = blockhash.Hash{31: 1}, blockhash.Hash{0: 0xff, 24: 0x80, 31: 2}
	ids, err := p.Get(nil, 2)
	require.NoError(t, err)
	p.Register(content, ids, 0, 1, 2, group, nil)
	p.Register(content, ids, 1, 2, 2, group, nil)
	p.Evict(ids[0])
	p.Free(ids)
	require.True(t, p.Reset())
	var v pool.Events
	p.View.TakeEvents(&v)
	return &v
}

const (
	hash0 = "c420" + "0000000000000000000000000000000000000000000000000000000000000001"
	hash1 = "c420" + "ff00000000000000000000000000000000000000000000008000000000000002"
)

func text(s string) string { return hex.EncodeToString(appendText(nil, s)) }

// Ensure that the bytes are those that MessagePack's specification demands. The fields, their order and their defaults
// must be those of vLLM's structs.
func TestBatchesAreVLLMs(t *testing.T) {
	stored := func(n string, hash, parent, tokens, lora, name, extra, group, kind, window string) string {
		return n + text("type") + text("BlockStored") + text("block_hashes") + "91" + hash + text("parent_block_hash") + parent +
			text("token_ids") + tokens + text("block_size") + "02" + text("lora_id") + lora + text("medium") + text("GPU") +
			text("lora_name") + name + text("extra_keys") + "91" + extra + text("group_idx") + group +
			text("kv_cache_spec_kind") + text(kind) + window
	}
	rest := func(hash, group string) string {
		return "84" + text("type") + text("BlockRemoved") + text("block_hashes") + "91" + hash + text("medium") + text("GPU") +
			text("group_idx") + group + "81" + text("type") + text("AllBlocksCleared")
	}
	for _, test := range []struct {
		name   string
		extras blockhash.Extras
		group  uint32
		ints   bool
		want   []string
	}{
		{"text only", blockhash.Extras{}, 0, false, []string{
			stored("8b", hash0, "c0", "9201ccc8", "c0", "c0", "c0", "00", "full_attention", ""),
			stored("8b", hash1, hash0, "92ce0001117004", "c0", "c0", "c0", "00", "full_attention", ""),
			rest(hash0, "00"),
		}},
		{"a window", blockhash.Extras{}, 1, false, []string{
			stored("8c", hash0, "c0", "9201ccc8", "c0", "c0", "c0", "01", "sliding_window", text("kv_cache_spec_sliding_window")+"cd012c"),
			stored("8c", hash1, hash0, "92ce0001117004", "c0", "c0", "c0", "01", "sliding_window", text("kv_cache_spec_sliding_window")+"cd012c"),
			rest(hash0, "01"),
		}},
		{"numbers as hashes", blockhash.Extras{}, 2, true, []string{
			stored("8b", "01", "c0", "9201ccc8", "c0", "c0", "c0", "02", "mamba", ""),
			stored("8b", "cf8000000000000002", "01", "92ce0001117004", "c0", "c0", "c0", "02", "mamba", ""),
			rest("01", "02"),
		}},
		{"an adapter, a salt and an image", blockhash.Extras{LoRA: "fine", Salt: "s", Items: []blockhash.Item{{Identifier: "cat", Offset: 1, Length: 2}}}, 3, false, []string{
			stored("8b", hash0, "c0", "9201ccc8", "07", text("fine"), "93"+text("fine")+"92"+text("cat")+"01"+text("s"), "03", "chunked_local_attention", ""),
			stored("8b", hash1, hash0, "92ce0001117004", "07", text("fine"), "92"+text("fine")+"92"+text("cat")+"ff", "03", "chunked_local_attention", ""),
			rest(hash0, "03"),
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := Encoder{Groups: layers, DataParallelRank: 3, IntHashes: test.ints}
			got := e.AppendBatch([]byte{0xaa}, 1.5, events(t, test.extras, test.group))
			want := "aa" + "93" + "cb3ff8000000000000" + "94" + strings.Join(test.want, "") + "03"
			require.Equal(t, want, hex.EncodeToString(got))
		})
	}
}

// The forms at the borders of the specification's ranges.
func TestIntegersAndLengthsTakeTheShortestForm(t *testing.T) {
	for _, test := range []struct {
		name string
		got  []byte
		want string
	}{
		{"127", appendInt(nil, 127), "7f"}, {"128", appendInt(nil, 128), "cc80"}, {"255", appendInt(nil, 255), "ccff"},
		{"256", appendInt(nil, 256), "cd0100"}, {"65536", appendInt(nil, 65536), "ce00010000"},
		{"2^32", appendInt(nil, 1<<32), "cf0000000100000000"}, {"-1", appendInt(nil, -1), "ff"}, {"-32", appendInt(nil, -32), "e0"},
		{"-33", appendInt(nil, -33), "d0df"}, {"-129", appendInt(nil, -129), "d1ff7f"}, {"-40000", appendInt(nil, -40000), "d2ffff63c0"},
		{"-2^40", appendInt(nil, -1<<40), "d3ffffff0000000000"},
		{"array of 15", appendArray(nil, 15), "9f"}, {"array of 16", appendArray(nil, 16), "dc0010"}, {"array of 65536", appendArray(nil, 65536), "dd00010000"},
		{"map of 16", appendMap(nil, 16), "de0010"},
		{"text of 31", appendText(nil, strings.Repeat("a", 31))[:1], "bf"}, {"text of 32", appendText(nil, strings.Repeat("a", 32))[:2], "d920"},
		{"text of 256", appendText(nil, strings.Repeat("a", 256))[:3], "da0100"},
		{"bytes of 256", appendBytes(nil, make([]byte, 256))[:3], "c50100"},
	} {
		t.Run(test.name, func(t *testing.T) { require.Equal(t, test.want, hex.EncodeToString(test.got)) })
	}
}
