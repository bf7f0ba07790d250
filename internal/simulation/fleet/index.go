package fleet

import (
	"encoding/binary"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/pool"
)

// An index records, for each block, the replicas that have cached it. It learns this from the replicas' cache events.
// Each event takes delay seconds to arrive.
type index struct {
	delay   float64           // s until an event arrives
	holders map[uint64]uint64 // sets of replicas as bits, by hash
	queues  [][]event         // by replica, in the order of time
	events  pool.Events       // scratch
}

// maxReplicas is the number of bits in a set of replicas.
const maxReplicas = 64

type event struct {
	seconds float64
	hash    uint64
	kind    pool.EventKind
}

// first64 returns the first 64 bits of a hash. The probability that any two of a billion blocks agree in these bits is
// 3 %.
func first64(h *blockhash.Hash) uint64 { return binary.LittleEndian.Uint64(h[:8]) }

func newIndex(delay float64, replicas int) index {
	return index{delay: delay, holders: map[uint64]uint64{}, queues: make([][]event, replicas)}
}

func (x *index) note(replica int, now float64) {
	q := &x.queues[replica]
	for i := range x.events.List {
		e := &x.events.List[i]
		if e.Kind == pool.Cleared {
			*q = append(*q, event{now, 0, e.Kind})
			continue
		}
		hashes := x.events.Hashes(e)
		for k := range hashes {
			*q = append(*q, event{now, first64(&hashes[k]), e.Kind})
		}
	}
}

func (x *index) arrive(now float64) {
	for replica, q := range x.queues {
		for len(q) > 0 && q[0].seconds+x.delay <= now {
			x.apply(replica, &q[0])
			q = q[1:] // append copies only what is left when it grows the array
		}
		x.queues[replica] = q
	}
}

func (x *index) apply(replica int, e *event) {
	bit := uint64(1) << replica
	switch e.kind {
	case pool.Stored:
		x.holders[e.hash] |= bit
	case pool.Removed:
		x.drop(e.hash, bit)
	case pool.Cleared:
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

// matches returns the number of leading hashes whose blocks the replica has cached.
func (x *index) matches(hashes []uint64, replica int) int {
	bit := uint64(1) << replica
	for i, h := range hashes {
		if x.holders[h]&bit == 0 {
			return i
		}
	}
	return len(hashes)
}
