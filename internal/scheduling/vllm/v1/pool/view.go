package pool

import "iter"

// A View reads the state of a Pool and takes its events.
type View struct{ p *Pool }

// Count is the number of references to a block.
func (v View) Count(id int32) int32 { return v.p.recs[id].count }

// NumFree is the length of the free queue.
func (v View) NumFree() int { return v.p.free }

// NumBlocks is the number of blocks, the null block included.
func (v View) NumBlocks() int { return v.p.config.NumGPUBlocks }

// Version returns a number that changes whenever a key is removed from a block. A hit is valid as long as the number
// stays the same.
func (v View) Version() uint64 { return v.p.version }

// Primary returns the primary key of block id, and the number of tokens of the prefix that the key identifies. ok is
// false if the block has no key.
func (v View) Primary(id int32) (key Key, tokens int, ok bool) {
	rec := &v.p.recs[id]
	if rec.tokens == 0 {
		return Key{}, 0, false
	}
	return Key{rec.hash, rec.group}, int(rec.tokens), true
}

// InsertedSince reports whether block id has keys and got the last of them in the given step or later. If this was
// more than 2^31 steps ago, the result can be wrong.
func (v View) InsertedSince(id int32, step uint32) bool {
	rec := &v.p.recs[id]
	return rec.tokens != 0 && int32(rec.stamp-step) >= 0
}

// InsertedNow is InsertedSince for the present step.
func (v View) InsertedNow(id int32) bool { return v.InsertedSince(id, v.p.stamp) }

// NumKeys is the number of different keys in the map.
func (v View) NumKeys() int { return v.p.used }

// Queue yields the free blocks from head to tail.
func (v View) Queue() iter.Seq[int32] {
	p := v.p
	return func(yield func(int32) bool) {
		for id := p.recs[p.end()].next; id != p.end(); id = p.recs[id].next {
			if !yield(id) {
				return
			}
		}
	}
}

// A Ring is a key with the blocks that have it. A lookup returns the first of them.
type Ring struct {
	Key    Key
	Blocks []int32
}

// Rings returns the keys that have had several blocks at once since they were added, in no particular order.
func (v View) Rings() []Ring {
	p := v.p
	var rings []Ring
	for _, s := range p.slots {
		if s.head == 0 || s.tag&duplicated == 0 {
			continue
		}
		head := s.head - 1
		e := p.entry(head)
		r := Ring{Key: Key{e.hash, e.group}}
		for node := head; ; {
			r.Blocks = append(r.Blocks, p.owner(node))
			if node = p.entry(node).younger; node == head {
				break
			}
		}
		rings = append(rings, r)
	}
	return rings
}
