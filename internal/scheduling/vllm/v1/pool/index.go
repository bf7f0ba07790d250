package pool

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"llmmemory/internal/scheduling/blockhash"
)

// A Key is the key by which a lookup finds a block. If two groups of layers have blocks with the same tokens, these
// blocks have different keys (vllm/v1/RULES.md §1).
type Key struct {
	Hash  blockhash.Hash
	Group uint32
}

// An entry is a key of a block, as a node of the hash map. Nodes with the same key form a ring in the order in which
// they were added.
type entry struct {
	hash           blockhash.Hash
	group          uint32
	younger, older int32 // neighbours in the ring
}

// A slot is an element of the hash map's array. The tag of a key selects a slot. A search for the key begins there and
// continues with the slots that follow (linear probing). Removing a key moves later keys back, so there are no
// tombstones.
type slot struct {
	tag  uint32 // 31 bits of the key, and duplicated
	head int32  // first node of the ring, plus 1; 0: empty slot
}

// duplicated is a bit of slot.tag. It is 1 if the slot's key has had several nodes at the same time since the key was
// added to the map.
const duplicated = 1 << 31

// slotsFor returns the number of slots for a pool, a power of two. If every block has one key, at least half of the
// slots are empty.
func slotsFor(blocks int) int { return 1 << bits.Len(uint(2*blocks-1)) }

// tagOf returns the tag of a key. It takes bits of the hash without mixing them, because hashes are evenly
// distributed.
func tagOf(h *blockhash.Hash, group uint32) uint32 {
	mixed := binary.LittleEndian.Uint64(h[:]) + uint64(group)*0x9E3779B97F4A7C15 // 2^64/φ
	return uint32(mixed>>32) &^ duplicated
}

// find returns the slot of a key. If the key is not in the map, find returns the empty slot where it must be added.
func (p *Pool) find(h *blockhash.Hash, group, tag uint32) (i uint32, found bool) {
	mask := uint32(len(p.slots) - 1)
	for i = tag & mask; ; i = (i + 1) & mask {
		s := &p.slots[i]
		if s.head == 0 {
			return i, false
		}
		if s.tag&^duplicated == tag {
			if e := p.entry(s.head - 1); e.group == group && e.hash.Equal(h) {
				return i, true
			}
		}
	}
}

// entry returns the node with the given number. Node id is the primary key of block id; the nodes after the last block
// are the additional keys in p.additional.
func (p *Pool) entry(node int32) *entry {
	if int(node) < p.config.NumGPUBlocks {
		return &p.recs[node].entry
	}
	return &p.additional[int(node)-p.config.NumGPUBlocks].entry
}

// Lookup returns the block with this key; of several blocks, the one that got the key first. It does not change the
// order of eviction (vllm/v1/RULES.md §2.5).
func (p *Pool) Lookup(h *blockhash.Hash, group uint32) (id int32, ok bool) {
	if p.used == 0 {
		return Null, false
	}
	i, ok := p.find(h, group, tagOf(h, group))
	if !ok {
		return Null, false
	}
	return p.owner(p.slots[i].head - 1), true
}

func (p *Pool) enter(node int32) {
	e := p.entry(node)
	tag := tagOf(&e.hash, e.group)
	i, found := p.find(&e.hash, e.group, tag)
	if found {
		head := p.slots[i].head - 1
		first := p.entry(head)
		e.younger, e.older = head, first.older
		p.entry(first.older).younger = node
		first.older = node
		p.slots[i].tag |= duplicated
		return
	}
	e.younger, e.older = node, node
	p.slots[i] = slot{tag, node + 1}
	p.used++
	if 4*p.used > 3*len(p.slots) { // only with additional keys: see slotsFor
		p.grow()
	}
}

// leave removes a node from the ring of its key. If it was the last node, leave removes the key from the map.
func (p *Pool) leave(node int32) {
	e := p.entry(node)
	i, found := p.find(&e.hash, e.group, tagOf(&e.hash, e.group))
	if !found {
		panic(fmt.Sprintf("the key of node %d is not in the map: group %d, hash %x", node, e.group, e.hash))
	}
	p.version++
	if e.younger == node {
		p.closeUp(i)
		p.used--
		return
	}
	p.entry(e.older).younger, p.entry(e.younger).older = e.younger, e.older
	if p.slots[i].head-1 == node {
		p.slots[i].head = e.younger + 1
	}
}

// closeUp empties slot i. It moves later slots back, so a search from before slot i still finds them.
func (p *Pool) closeUp(i uint32) {
	mask := uint32(len(p.slots) - 1)
	for j := (i + 1) & mask; p.slots[j].head != 0; j = (j + 1) & mask {
		home := p.slots[j].tag & mask // duplicated is above the mask in pools of at most 2^30 blocks
		if (j-home)&mask >= (j-i)&mask {
			p.slots[i] = p.slots[j]
			i = j
		}
	}
	p.slots[i] = slot{}
}

func (p *Pool) grow() {
	old := p.slots
	p.slots = make([]slot, 2*len(old))
	mask := uint32(len(p.slots) - 1)
	for _, s := range old {
		if s.head == 0 {
			continue
		}
		i := s.tag & mask &^ duplicated
		for p.slots[i].head != 0 {
			i = (i + 1) & mask
		}
		p.slots[i] = s
	}
}
