package fleet

import (
	"encoding/binary"

	"llmmemory/internal/vllm/blockhash"
	"llmmemory/internal/vllm/v1/pool"
)

// An index says which replicas have which blocks cached, as far as their events have
// arrived.
type index struct {
	delay   float64           // s, that an event is under way
	holders map[uint64]uint64 // bits of replicas, by hash
	queues  [][]event         // by replica, in the order of time
	heads   []int             // the next of each queue that arrives
	events  pool.Events       // scratch
}

// mostReplicas is how many an index can distinguish.
const mostReplicas = 64

type eventKind uint8

const (
	stored eventKind = iota
	removed
	cleared
)

type event struct {
	at   float64
	hash uint64
	kind eventKind
}

// short returns a part of a hash. Among a billion blocks, two are alike with a probability of 3 %.
func short(h *blockhash.Hash) uint64 { return binary.LittleEndian.Uint64(h[:8]) }

func newIndex(delay float64, replicas int) index {
	return index{delay: delay, holders: map[uint64]uint64{}, queues: make([][]event, replicas),
		heads: make([]int, replicas)}
}

// note queues what a replica recorded until now.
func (x *index) note(replica int, now float64) {
	for i := range x.events.List {
		e := &x.events.List[i]
		kind := map[pool.EventKind]eventKind{pool.Stored: stored, pool.Removed: removed, pool.Cleared: cleared}[e.Kind]
		if kind == cleared {
			x.send(replica, event{now, 0, cleared})
			continue
		}
		hashes := x.events.Hashes(e)
		for k := range hashes {
			x.send(replica, event{now, short(&hashes[k]), kind})
		}
	}
}

func (x *index) send(replica int, e event) { x.queues[replica] = append(x.queues[replica], e) }

// arrive applies the events that have arrived by a time.
func (x *index) arrive(now float64) {
	for p := range x.queues {
		q, head := x.queues[p], x.heads[p]
		for ; head < len(q) && q[head].at+x.delay <= now; head++ {
			x.apply(p, &q[head])
		}
		if head == len(q) {
			x.queues[p], head = q[:0], 0
		} else if head > 4096 && head > len(q)/2 {
			n := copy(q, q[head:])
			x.queues[p], head = q[:n], 0
		}
		x.heads[p] = head
	}
}

func (x *index) apply(replica int, e *event) {
	bit := uint64(1) << replica
	switch e.kind {
	case stored:
		x.holders[e.hash] |= bit
	case removed:
		x.drop(e.hash, bit)
	case cleared:
		for hash := range x.holders {
			x.drop(hash, bit)
		}
	}
}

func (x *index) drop(hash, bit uint64) {
	if left := x.holders[hash] &^ bit; left == 0 {
		delete(x.holders, hash)
	} else {
		x.holders[hash] = left
	}
}

// matches returns how many of the first hashes a replica has.
func (x *index) matches(hashes []uint64, replica int) int {
	bit := uint64(1) << replica
	for i, h := range hashes {
		if x.holders[h]&bit == 0 {
			return i
		}
	}
	return len(hashes)
}
