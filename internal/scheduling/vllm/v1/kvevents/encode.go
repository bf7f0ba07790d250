// Package kvevents encodes the events of a prefix cache as vLLM does for routers and indexers. The encoding is
// MessagePack, with exactly the bytes of vLLM's msgspec encoder (vllm/distributed/kv_events.py; RULES.md §12).
//
// Package pool records the events, and package publish sends the bytes.
package kvevents

import (
	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/scheduling/vllm/v1/pool"
)

// An Encoder encodes batches of events. It is safe for concurrent use.
type Encoder struct {
	Groups           []kvcache.Group // the cache's groups, for the kind of attention in events
	DataParallelRank int
	IntHashes        bool // hashes as numbers (VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES)

	// Arrays makes the Encoder write an event as an array of its type and fields, not as a map. Fields at the end
	// are left out if they have their defaults. vLLM sent arrays before #42892 (2026), and llm-d's indexer reads
	// arrays.
	Arrays bool
}

const medium = "GPU"

// AppendBatch appends a KVEventBatch: an array of the time in seconds, the events and the data-parallel rank.
func (e *Encoder) AppendBatch(dst []byte, seconds float64, events *pool.Events) []byte {
	dst = appendArray(dst, 3)
	dst = appendFloat(dst, seconds)
	dst = appendArray(dst, len(events.List))
	for i := range events.List {
		dst = e.appendEvent(dst, events, &events.List[i])
	}
	return appendInt(dst, int64(e.DataParallelRank))
}

// appendEvent appends an event as a map or as an array. In a map, optional fields are left out if they have their
// defaults.
func (e *Encoder) appendEvent(dst []byte, all *pool.Events, v *pool.Event) []byte {
	switch v.Kind {
	case pool.Stored:
		return e.appendStored(dst, all, v)
	case pool.Removed:
		dst = e.begin(dst, 4, "BlockRemoved")
		dst = e.appendHashes(e.name(dst, "block_hashes"), all.Hashes(v))
		dst = appendText(e.name(dst, "medium"), medium)
		return appendInt(e.name(dst, "group_idx"), int64(v.Group))
	}
	return e.begin(dst, 1, "AllBlocksCleared")
}

func (e *Encoder) begin(dst []byte, fields int, kind string) []byte {
	if e.Arrays {
		return appendText(appendArray(dst, fields), kind)
	}
	return appendText(e.name(appendMap(dst, fields), "type"), kind)
}

// name appends the name of a field, unless events are arrays.
func (e *Encoder) name(dst []byte, field string) []byte {
	if e.Arrays {
		return dst
	}
	return appendText(dst, field)
}

func (e *Encoder) appendStored(dst []byte, all *pool.Events, v *pool.Event) []byte {
	kind, window := e.spec(v.Group)
	hashes := all.Hashes(v)
	fields := 10
	if len(hashes) > 0 || e.Arrays {
		fields++
	}
	if window > 0 {
		fields++
	}
	dst = e.begin(dst, fields, "BlockStored")
	dst = e.appendHashes(e.name(dst, "block_hashes"), hashes)
	dst = e.name(dst, "parent_block_hash")
	if v.HasParent {
		dst = e.appendHash(dst, &v.Parent)
	} else {
		dst = appendNil(dst)
	}
	dst = appendArray(e.name(dst, "token_ids"), len(all.Tokens(v)))
	for _, t := range all.Tokens(v) {
		dst = appendInt(dst, int64(t))
	}
	dst = appendInt(e.name(dst, "block_size"), int64(v.BlockSize))
	dst = e.name(dst, "lora_id")
	if v.LoRA == "" {
		dst = appendNil(dst)
	} else {
		dst = appendInt(dst, v.LoRAID)
	}
	dst = appendText(e.name(dst, "medium"), medium)
	dst = e.name(dst, "lora_name")
	if v.LoRA == "" {
		dst = appendNil(dst)
	} else {
		dst = appendText(dst, v.LoRA)
	}
	return e.appendOptional(dst, v, len(hashes), kind, window)
}

func (e *Encoder) appendOptional(dst []byte, v *pool.Event, hashes int, kind string, window int) []byte {
	switch {
	case hashes > 0:
		dst = appendExtras(e.name(dst, "extra_keys"), v.Extra, hashes)
	case e.Arrays:
		dst = appendNil(dst)
	}
	dst = appendInt(e.name(dst, "group_idx"), int64(v.Group))
	dst = appendText(e.name(dst, "kv_cache_spec_kind"), kind)
	if window > 0 {
		dst = appendInt(e.name(dst, "kv_cache_spec_sliding_window"), int64(window))
	}
	return dst
}

func (e *Encoder) spec(group uint32) (kind string, window int) {
	if int(group) >= len(e.Groups) {
		return "unknown", 0
	}
	switch g := &e.Groups[group]; g.Kind {
	case kvcache.SlidingWindow:
		return "sliding_window", g.Window
	case kvcache.ChunkedLocal:
		return "chunked_local_attention", 0
	case kvcache.Mamba:
		return "mamba", 0
	}
	return "full_attention", 0
}

func (e *Encoder) appendHashes(dst []byte, hashes []blockhash.Hash) []byte {
	dst = appendArray(dst, len(hashes))
	for i := range hashes {
		dst = e.appendHash(dst, &hashes[i])
	}
	return dst
}

func (e *Encoder) appendHash(dst []byte, h *blockhash.Hash) []byte {
	if e.IntHashes {
		return appendUint(dst, h.Low64())
	}
	return appendBytes(dst, h[:])
}

// appendExtras appends one entry for each hash: the extra keys of the hash's block, or nil.
func appendExtras(dst []byte, extras [][]blockhash.Key, n int) []byte {
	dst = appendArray(dst, n)
	for i := range n {
		if i >= len(extras) || extras[i] == nil {
			dst = appendNil(dst)
			continue
		}
		dst = appendKeys(dst, extras[i])
	}
	return dst
}

func appendKeys(dst []byte, keys []blockhash.Key) []byte {
	dst = appendArray(dst, len(keys))
	for i := range keys {
		switch k := &keys[i]; k.Kind {
		case blockhash.Text:
			dst = appendText(dst, k.Text)
		case blockhash.Int:
			dst = appendInt(dst, k.Int)
		case blockhash.Tuple:
			dst = appendKeys(dst, k.Tuple)
		}
	}
	return dst
}
