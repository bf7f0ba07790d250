package blockhash

import "fmt"

// A Key is one extra key of a block. Kind says which of the other fields has the value of the key.
type Key struct {
	Kind  Kind
	Text  string
	Int   int64
	Tuple []Key
}

// Kind is the kind of a Key's value.
type Kind uint8

const (
	Text Kind = iota
	Int
	Tuple
)

// An Item is a multimodal input, for example an image. The tokens [Offset, Offset+Length) of the prompt are
// placeholders of the item.
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

// Check returns an error if items are empty, overlap, or are not in ascending order.
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

// Last is the Cursor that starts at the last multimodal item. vLLM starts there when it hashes blocks after token 0,
// such as the blocks that become full while tokens are generated (vllm/v1/RULES.md §3). So if several items overlap
// such a block, its hash covers only the last item. A request with several items at the end of its prompt may therefore
// need a salt that covers the items.
const Last Cursor = -1

// A Cursor is the index of the next multimodal item to look at. The caller hashes the blocks of a request in ascending
// order with one Cursor.
type Cursor int

// Block returns the extra keys of the block with the tokens [start, end). The keys are in vLLM's order: LoRA,
// multimodal, salt. Block returns nil if there are no keys. It advances the cursor.
func (e *Extras) Block(start, end int, cursor *Cursor) []Key {
	var keys []Key
	if e.LoRA != "" {
		keys = append(keys, Key{Text: e.LoRA})
	}
	keys = e.items(keys, start, end, cursor)
	if e.Salt != "" && start == 0 {
		keys = append(keys, Key{Text: e.Salt})
	}
	return keys
}

// items appends a key for each multimodal item, from the cursor on, that overlaps the block with the tokens [start,
// end). The key has the item's identifier and its offset from the start of the block, which is negative if the item
// begins before the block.
func (e *Extras) items(keys []Key, start, end int, cursor *Cursor) []Key {
	n := len(e.Items)
	if n == 0 || e.Items[n-1].end() <= start {
		return keys
	}
	if *cursor < 0 {
		*cursor = Cursor(n - 1)
	}
	for ; int(*cursor) < n; *cursor++ {
		item := &e.Items[*cursor]
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
