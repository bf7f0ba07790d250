package pool

import "llmmemory/internal/scheduling/blockhash"

// EventKind is what happened to the prefix cache (vllm/v1/RULES.md §12).
type EventKind uint8

const (
	Stored  EventKind = iota // blocks got keys
	Removed                  // one block lost one key, which another block may still have
	Cleared                  // all blocks lost their keys
)

// An Event is one change of the prefix cache. A Stored event uses all fields. A Removed event has only Kind, Group and
// one hash; a Cleared event has only Kind.
type Event struct {
	Kind      EventKind
	Group     uint32
	HasParent bool           // false: the blocks start at token 0
	Parent    blockhash.Hash // of the block before the first one
	BlockSize int
	LoRA      string
	LoRAID    int64
	Extra     [][]blockhash.Key // extra keys of the block of each hash; nil if no block has any

	hashes, tokens span
}

// A span is the range of Events.hashes or Events.tokens that belongs to an event.
type span struct{ start, end int }

// Events are the events between two calls of TakeEvents. The slices that Hashes and Tokens return are valid until the
// Events is passed to TakeEvents again.
type Events struct {
	List   []Event
	hashes []blockhash.Hash
	tokens []int32
}

// Hashes returns the hashes of the blocks of e. A Stored event can have none.
func (v *Events) Hashes(e *Event) []blockhash.Hash { return v.hashes[e.hashes.start:e.hashes.end] }

// Tokens returns the tokens of a Stored event, including the tokens of blocks that got no key.
func (v *Events) Tokens(e *Event) []int32 { return v.tokens[e.tokens.start:e.tokens.end] }

// TakeEvents replaces dst by the events since the last call.
func (v View) TakeEvents(dst *Events) {
	p := v.p
	clear(dst.List) // so that their extra keys can be collected
	dst.List, dst.hashes, dst.tokens = dst.List[:0], dst.hashes[:0], dst.tokens[:0]
	*dst, p.events = p.events, *dst
}

func (v *Events) removed(h *blockhash.Hash, group uint32) {
	v.hashes = append(v.hashes, *h)
	v.List = append(v.List, Event{Kind: Removed, Group: group, hashes: span{len(v.hashes) - 1, len(v.hashes)}})
}

// recordStored adds one Stored event for the blocks start to end-1 of a request. The event has the tokens of all these
// blocks. It has the hash of block i unless table[i] is the null block, or mask[i-start] is false. table and mask can
// be nil. The parameter cursor is the index of the multimodal item at which the search for the items of block start
// begins, or blockhash.Last.
func (p *Pool) recordStored(c *Content, table []int32, start, end, blockSize int, group uint32, mask []bool, cursor blockhash.Cursor) {
	v := &p.events
	scale := blockSize / p.config.HashBlockSize
	e := Event{Kind: Stored, Group: group, BlockSize: blockSize, LoRA: c.Extras.LoRA, LoRAID: c.LoRAID}
	if start > 0 {
		e.HasParent, e.Parent = true, c.Hashes[start*scale-1]
	}
	e.tokens = span{len(v.tokens), len(v.tokens) + (end-start)*blockSize}
	v.tokens = append(v.tokens, c.Tokens[start*blockSize:end*blockSize]...)
	e.hashes = span{len(v.hashes), len(v.hashes)}
	for i := start; i < end; i++ {
		if table != nil && table[i] == Null || mask != nil && !mask[i-start] {
			continue
		}
		v.addBlock(&e, &c.Hashes[(i+1)*scale-1], c.Extras.Block(i*blockSize, (i+1)*blockSize, &cursor))
	}
	v.List = append(v.List, e)
}

// ReportHit adds a Stored event for the first blocks of a request, which a lookup has found (vllm/v1/RULES.md §12,
// report mode "full"). If the tokens of the request end inside the last block, the event leaves this block out.
func (p *Pool) ReportHit(c *Content, blocks, blockSize int, group uint32) {
	blocks = min(blocks, len(c.Hashes)/(blockSize/p.config.HashBlockSize))
	if p.config.EnableEvents && blocks > 0 {
		p.recordStored(c, nil, 0, blocks, blockSize, group, nil, 0)
	}
}

func (v *Events) addBlock(e *Event, h *blockhash.Hash, extra []blockhash.Key) {
	v.hashes = append(v.hashes, *h)
	if e.hashes.end++; extra == nil && e.Extra == nil {
		return
	}
	for len(e.Extra) < e.hashes.end-e.hashes.start-1 {
		e.Extra = append(e.Extra, nil) // of the blocks before the first block with extra keys
	}
	e.Extra = append(e.Extra, extra)
}
