package pool

import "llmmemory/internal/scheduling/blockhash"

// EventKind is what happened to the prefix cache (vllm/v1/RULES.md §12).
type EventKind uint8

const (
	Stored  EventKind = iota // blocks can be hit from now on
	Removed                  // one block, with one hash, cannot be hit any more; another one with this hash may be
	Cleared                  // no hash can: a reset
)

// An Event is one change. Group and the hashes are those of Stored and Removed,
// the rest belongs to Stored.
type Event struct {
	Kind      EventKind
	Group     uint32
	HasParent bool           // false: the range starts at token 0
	Parent    blockhash.Hash // of the block in front of the range
	BlockSize int
	LoRA      string
	LoRAID    int64
	Extra     [][]blockhash.Key // extra keys of each hash; nil if no hash has any

	hashes, tokens span
}

// A span is a part of one of the arrays that all events share.
type span struct{ from, to int }

// Events are what a pool recorded since they were taken last. The arrays are
// used again, so an Events filled by TakeEvents is good until the next call
// that fills it.
type Events struct {
	List   []Event
	hashes []blockhash.Hash
	tokens []int32
}

// Hashes are the blocks that e is about. A Stored event can have none.
func (v *Events) Hashes(e *Event) []blockhash.Hash { return v.hashes[e.hashes.from:e.hashes.to] }

// Tokens are those of the whole range of a Stored event, with the blocks that
// were skipped.
func (v *Events) Tokens(e *Event) []int32 { return v.tokens[e.tokens.from:e.tokens.to] }

// TakeEvents moves the recorded events to dst and starts anew.
func (v View) TakeEvents(dst *Events) {
	p := v.p
	clear(dst.List) // lets go of extra keys
	dst.List, dst.hashes, dst.tokens = dst.List[:0], dst.hashes[:0], dst.tokens[:0]
	*dst, p.events = p.events, *dst
}

func (v *Events) removed(h *blockhash.Hash, group uint32) {
	v.List = append(v.List, Event{Kind: Removed, Group: group, hashes: v.addHash(h)})
}

func (v *Events) cleared() { v.List = append(v.List, Event{Kind: Cleared}) }

func (v *Events) addHash(h *blockhash.Hash) span {
	v.hashes = append(v.hashes, *h)
	return span{len(v.hashes) - 1, len(v.hashes)}
}

func (v *Events) addTokens(tokens []int32) span {
	v.tokens = append(v.tokens, tokens...)
	return span{len(v.tokens) - len(tokens), len(v.tokens)}
}
