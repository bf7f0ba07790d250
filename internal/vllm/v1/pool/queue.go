package pool

import "iter"

// The queue of free blocks is a ring of links inside the records, closed by a
// sentinel after the last block: the block to be reused next is after the
// sentinel, the one to be kept longest in front of it.

func (p *Pool) end() int32 { return int32(len(p.recs) - 1) }

// link puts the free block id after at.
func (p *Pool) link(id, at int32) {
	next := p.recs[at].next
	p.recs[at].next, p.recs[next].prev = id, id
	p.recs[id].next, p.recs[id].prev = next, at
	p.free++
}

// unlink takes id out of the queue.
func (p *Pool) unlink(id int32) {
	next, prev := p.recs[id].next, p.recs[id].prev
	p.recs[prev].next, p.recs[next].prev = next, prev
	p.free--
}

// Queue yields the free blocks from head to tail.
func (p *Pool) Queue() iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for id := p.recs[p.end()].next; id != p.end(); id = p.recs[id].next {
			if !yield(id) {
				return
			}
		}
	}
}
