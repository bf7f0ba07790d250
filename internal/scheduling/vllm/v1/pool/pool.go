package pool

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"llmmemory/internal/invariants"
)

// Null is the id of the null block.
const Null int32 = 0

// ErrNoBlocks is wrapped by the error of Get if fewer blocks are free than the caller asks for.
var ErrNoBlocks = errors.New("not enough free blocks")

// Config describes a pool.
type Config struct {
	NumGPUBlocks  int  // including the null block, so one less can be used
	EnableCaching bool // keep keys of full blocks for prefix hits
	HashBlockSize int  // tokens that one hash of a request covers
	EnableEvents  bool // record what is stored and removed
}

// A Pool hands out blocks by id.
type Pool struct {
	View View

	recs []record // one for each block, and the queue's sentinel
	free int      // length of the queue

	additional []additionalKey // additional keys, from partial entries only
	first      map[int32]int32 // block → its first additional key
	spare      []int32         // unused indexes of additional
	slots      []slot          // open addressing: key → first block
	used       int             // slots in use, which is the number of keys

	config  Config
	events  Events
	version uint64 // see View.Version
	stamp   uint32 // see SetStamp
}

// A record is the state of a block.
type record struct {
	entry             // the primary key
	count      int32  // references
	next, prev int32  // neighbours in the queue
	tokens     uint32 // length of the prefix that the primary key identifies; 0: the block has no key
	stamp      uint32 // step in which it got its last key
}

// New returns a pool whose queue has the blocks 1, 2, ... in this order.
func New(config Config) (*Pool, error) {
	n := config.NumGPUBlocks
	if n < 1 || n >= math.MaxInt32 {
		return nil, fmt.Errorf("a pool of %d blocks: want 1 to %d", n, math.MaxInt32-1)
	}
	if config.HashBlockSize < 1 {
		return nil, fmt.Errorf("hashes of %d tokens: want at least 1", config.HashBlockSize)
	}
	p := &Pool{config: config, recs: large[record](n + 1)}
	p.View = View{p}
	end := p.end()
	p.recs[end].next, p.recs[end].prev = end, end
	for id := int32(1); id < end; id++ {
		p.link(id, p.recs[end].prev)
	}
	if config.EnableCaching {
		p.slots = large[slot](slotsFor(n))
	}
	return p, nil
}

// Get takes n blocks from the head of the queue, removes their keys, gives each the count 1, and appends them to
// dst (vllm/v1/RULES.md §2.1). If fewer blocks are free, Get changes nothing and returns an error that wraps
// ErrNoBlocks.
func (p *Pool) Get(dst []int32, n int) ([]int32, error) {
	if invariants.Enabled {
		defer invariants.Hold(p.View.Check)
	}
	if n > p.free {
		return dst, fmt.Errorf("%w: %d asked for, %d free", ErrNoBlocks, n, p.free)
	}
	end := p.end()
	head := p.recs[end].next
	for range n {
		id := head
		rec := &p.recs[id]
		head = rec.next
		if rec.tokens != 0 {
			p.forget(id, p.config.EnableEvents)
		}
		rec.count = 1
		dst = append(dst, id)
	}
	p.recs[end].next = head
	p.recs[head].prev = end
	p.free -= max(n, 0)
	return dst, nil
}

// Touch adds a reference to each block except the null block. If a block was free, Touch also removes it from the queue
// (vllm/v1/RULES.md §2.2).
func (p *Pool) Touch(ids []int32) {
	if invariants.Enabled {
		defer invariants.Hold(p.View.Check)
	}
	for _, id := range ids {
		if id == Null {
			continue
		}
		if p.recs[id].count == 0 {
			p.unlink(id)
		}
		p.recs[id].count++
	}
}

// Free removes a reference from each block of a table except null blocks, from the last block to the first. So the end
// of a sequence is evicted before its beginning (vllm/v1/RULES.md §2.4). Freed blocks without a key are put at the head
// of the queue, in the order in which they are freed. Freed blocks with a key are put at its tail (§2.3).
func (p *Pool) Free(table []int32) {
	if invariants.Enabled {
		defer invariants.Hold(p.View.Check)
	}
	prev := p.end()
	for _, id := range slices.Backward(table) {
		prev = p.release(id, prev)
	}
}

// release removes one reference from block id. If the block becomes free and has a key, release puts it at the tail of
// the queue. If it becomes free without a key, release puts it after block prev and returns id. Otherwise release
// returns prev.
//
// Free passes the result of one call as prev to the next call; the first prev is the queue's sentinel. So blocks
// without a key are put at the head of the queue, in the order in which they become free.
func (p *Pool) release(id, prev int32) int32 {
	if id == Null {
		return prev
	}
	rec := &p.recs[id]
	rec.count--
	switch count := rec.count; {
	case count > 0:
		return prev
	case count < 0:
		panic(fmt.Sprintf("block %d is freed, but it is free already", id))
	}
	if rec.tokens == 0 {
		p.link(id, prev)
		return id
	}
	p.link(id, p.recs[p.end()].prev)
	return prev
}

// end returns the index of the queue's sentinel. The queue is a ring of records: the block after the sentinel is its
// head, the block before the sentinel its tail.
func (p *Pool) end() int32 { return int32(len(p.recs) - 1) }

// link puts the free block id into the queue after block prev.
func (p *Pool) link(id, prev int32) {
	next := p.recs[prev].next
	p.recs[prev].next, p.recs[next].prev = id, id
	p.recs[id].next, p.recs[id].prev = next, prev
	p.free++
}

func (p *Pool) unlink(id int32) {
	next, prev := p.recs[id].next, p.recs[id].prev
	p.recs[prev].next, p.recs[next].prev = next, prev
	p.free--
}
