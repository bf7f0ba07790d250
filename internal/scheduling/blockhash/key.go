package blockhash

import "fmt"

// A Key is one extra key of a block. Exactly one kind of value is set.
type Key struct {
	Kind  Kind
	Text  string
	Int   int64
	Tuple []Key
}

// Kind is which field of a Key is used.
type Kind uint8

const (
	Text Kind = iota
	Int
	Tuple
)

// An Item is one multimodal input: an image, say, that stands in the place of
// Length tokens from Offset on.
type Item struct {
	Identifier     string
	Offset, Length int
}

// Extras are the keys that a request adds to the hashes of its blocks.
type Extras struct {
	LoRA  string // name of the adapter, "" for the base model
	Items []Item // by ascending offset
	Salt  string // "" for none
}

// none reports whether no block can have an extra key.
func (e *Extras) none() bool {
	return e.LoRA == "" && len(e.Items) == 0 && e.Salt == ""
}

// Check refuses extras with which a block's hash would not cover all that is in
// the block.
func (e *Extras) Check() error {
	end := 0
	for i, item := range e.Items {
		if item.Offset < end || item.Length < 1 {
			return fmt.Errorf("item %d has %d tokens from %d on: want at least 1, from %d on",
				i, item.Length, item.Offset, end)
		}
		end = item.end()
	}
	return nil
}

// Last starts a Cursor at the last multimodal item, which is where a run that does not begin at
// token 0 starts (vllm/v1/RULES.md §3). So a block that generated tokens complete is named after
// the last item in it only. vLLM does the same. A host that needs more must give requests with
// several items at the end of the prompt a salt that covers them.
const Last Cursor = -1

// A Cursor is the next multimodal item of a run of blocks.
type Cursor int

// Block returns the extra keys of the block [start, end) in vLLM's order: LoRA,
// multimodal, salt; nil if there are none. It moves the cursor.
func (e *Extras) Block(start, end int, at *Cursor) []Key {
	if e.none() {
		return nil
	}
	var keys []Key
	if e.LoRA != "" {
		keys = append(keys, Key{Text: e.LoRA})
	}
	keys = e.items(keys, start, end, at)
	if e.Salt != "" && start == 0 {
		keys = append(keys, Key{Text: e.Salt})
	}
	return keys
}

// items adds the multimodal keys. An item's offset counts from the start of the
// block, so it is negative when the item began earlier.
func (e *Extras) items(keys []Key, start, end int, at *Cursor) []Key {
	n := len(e.Items)
	if n == 0 || e.Items[n-1].end() <= start {
		return keys
	}
	if *at < 0 {
		*at = Cursor(n - 1)
	}
	for ; int(*at) < n; *at++ {
		item := &e.Items[*at]
		if item.Offset >= end {
			break
		}
		if item.end() <= start {
			continue
		}
		keys = append(keys, Key{Kind: Tuple, Tuple: []Key{
			{Text: item.Identifier}, {Kind: Int, Int: int64(item.Offset - start)},
		}})
		if item.end() > end {
			break
		}
	}
	return keys
}

func (i *Item) end() int { return i.Offset + i.Length }
