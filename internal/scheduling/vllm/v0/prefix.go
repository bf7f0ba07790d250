package v0

import (
	"fmt"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/reqtable"
)

// A prefix is the state of prefix caching on the GPU. It knows the cached prefix of each block. The evictor is a queue
// of the cached blocks that no table names, in the order in which they lost their last references (vllm/v0/RULES.md
// §6).
type prefix struct {
	hash    blockhash.Fast
	cached  map[blockhash.Hash]int32
	blocks  []cachedBlock // one for each id
	evictor *reqtable.Queue
	touched []int32 // blocks registered since the last MarkComputed
}

type cachedBlock struct {
	key      blockhash.Hash
	tokens   int     // length of the prefix that ends with the block; 0 if the block is not cached
	access   float64 // time of the last access, or -1
	computed bool
	touched  bool
}

func (p *prefix) track(id int32, computed bool) {
	p.blocks[id].access, p.blocks[id].computed = -1, computed
}

// evict removes a block from the evictor and returns it. It walks from the head and remembers the block b with the
// longest prefix so far. It stops at the first block that was accessed later than b.
func (p *prefix) evict() int32 {
	best := p.evictor.Head()
	if best == reqtable.None {
		panic(fmt.Sprintf("a block is evicted, but none of the %d cached blocks is evictable", len(p.cached)))
	}
	for id := p.evictor.Next(best); id != reqtable.None; id = p.evictor.Next(id) {
		if p.blocks[id].access > p.blocks[best].access {
			break
		}
		if p.blocks[id].tokens > p.blocks[best].tokens {
			best = id
		}
	}
	p.evictor.Remove(best)
	delete(p.cached, p.blocks[best].key)
	p.blocks[best].tokens = 0
	return best
}

func (p *prefix) register(id int32, key *blockhash.Hash, tokens int) {
	b := &p.blocks[id]
	b.key, b.tokens = *key, tokens
	p.cached[*key] = id
	if !b.touched {
		b.touched = true
		p.touched = append(p.touched, id)
	}
}

// key returns the key of block i of s, which must be full. Block i-1 must already have its key.
func (m *Manager) key(s *Seq, i int) (key blockhash.Hash) {
	parent := blockhash.Hash{}
	if i > 0 {
		parent = m.prefix.blocks[s.table[i-1]].key
	}
	m.prefix.hash.Sum(&key, &parent, s.Tokens[i*m.config.BlockSize:(i+1)*m.config.BlockSize], nil)
	return key
}

// allocateChunk returns a block for the full block i of the prompt s. If a block with this prefix is cached, it returns
// that block. Otherwise it returns a new block and adds it to the cache.
func (m *Manager) allocateChunk(s *Seq, i int) int32 {
	p := m.prefix
	key := m.key(s, i)
	if id, hit := p.cached[key]; hit {
		m.adopt(id)
		return id
	}
	id := m.take()
	p.register(id, &key, (i+1)*m.config.BlockSize)
	return id
}

func (m *Manager) adopt(id int32) {
	if m.gpu.Ref(id) {
		m.prefix.evictor.Remove(id)
		m.prefix.track(id, true)
	}
}

// promote adds block i of s, which has just become full, to the cache. If a block with the same prefix is already
// cached, promote puts that block into the table instead.
func (m *Manager) promote(s *Seq, i int) {
	key := m.key(s, i)
	if id, hit := m.prefix.cached[key]; hit {
		m.gpu.Drop(s.table[i])
		m.adopt(id)
		s.table[i] = id
		return
	}
	m.prefix.register(s.table[i], &key, (i+1)*m.config.BlockSize)
}

// inUse returns how many full blocks of the prompt s are cached and named by other tables.
func (m *Manager) inUse(s *Seq) int {
	n := 0
	m.walkKeys(s, 0, s.Len, blockhash.Hash{}, func(key *blockhash.Hash) bool {
		if id, hit := m.prefix.cached[*key]; hit && m.gpu.Count(id) > 0 {
			n++
		}
		return true
	})
	return n
}

// walkKeys calls f with the keys of full blocks of s until f returns false. It starts with the block with index
// firstBlock, and ends before token end. parent is the key of the block before firstBlock.
func (m *Manager) walkKeys(s *Seq, firstBlock, end int, parent blockhash.Hash, f func(key *blockhash.Hash) bool) {
	size := m.config.BlockSize
	for start := firstBlock * size; start+size <= end; start += size {
		m.prefix.hash.Sum(&parent, &parent, s.Tokens[start:start+size], nil)
		if !f(&parent) {
			return
		}
	}
}

// promotionsHelp reports whether there are enough free blocks for the copies that an append to s makes. The append
// copies the blocks that s shares with other tables. free is the number of free blocks for these copies at the start of
// the append.
//
// During the append, blocks of s can become full. For each of them, promote looks for a cached block with the same
// prefix, and puts that block into the table instead. If another table also has the cached block, this saves a block:
// the replaced block of s becomes free, and a later copy of the same append can take it.
func (m *Manager) promotionsHelp(s *Seq, free int) bool {
	size := m.config.BlockSize
	i := s.full / size
	parent := blockhash.Hash{}
	if i > 0 {
		parent = m.prefix.blocks[s.table[i-1]].key
	}
	take := func() {
		if i < len(s.table) && m.gpu.Shared(s.table[i]) {
			free--
		}
		i++
	}
	if free < 0 || s.Unseen() == 0 {
		return free >= 0
	}
	m.walkKeys(s, i, s.Len, parent, func(key *blockhash.Hash) bool {
		take()
		if free < 0 {
			return false
		}
		if id, hit := m.prefix.cached[*key]; hit && m.gpu.Count(id) > 0 {
			free++
		}
		return true
	})
	if i*size < s.Len {
		take()
	}
	return free >= 0
}

// freeCached drops the references of s to its blocks. Full blocks stay cached. The time of their last access becomes
// that of s.
func (m *Manager) freeCached(s *Seq) {
	p := m.prefix
	if s.accessed {
		for _, id := range s.table {
			p.blocks[id].access = s.access
		}
	}
	for i, id := range s.table {
		if i >= s.fullBlocks(m.config.BlockSize) {
			m.gpu.Drop(id)
		} else if m.gpu.Unref(id) {
			p.evictor.PushBack(id)
		}
	}
}

// Access sets the time of the last access of the sequences to now. Free writes this time to their blocks
// (vllm/v0/RULES.md §6).
func (m *Manager) Access(now float64, group ...*Seq) {
	for _, s := range group {
		s.access, s.accessed = now, true
	}
}

// MarkComputed marks all blocks in the cache as computed. The scheduler calls MarkComputed when it has made a batch
// (vllm/v0/RULES.md §6).
func (m *Manager) MarkComputed() {
	if m.prefix == nil {
		return
	}
	for _, id := range m.prefix.touched {
		m.prefix.blocks[id].computed, m.prefix.blocks[id].touched = true, false
	}
	m.prefix.touched = m.prefix.touched[:0]
}

// Computed appends to dst the computed blocks at the beginning of the tables of a group (vllm/v0/RULES.md §6). If the
// group has several sequences, Computed appends the longest common prefix of their lists of computed blocks. It ignores
// sequences without computed blocks.
func (m *Manager) Computed(dst []int32, group ...*Seq) []int32 {
	if m.prefix == nil {
		return dst
	}
	start := len(dst)
	first := true
	for _, s := range group {
		ids := m.computedOf(s)
		if len(group) > 1 && len(ids) == 0 {
			continue
		}
		if first {
			dst, first = append(dst, ids...), false
			continue
		}
		n := 0
		for n < len(ids) && start+n < len(dst) && ids[n] == dst[start+n] {
			n++
		}
		dst = dst[:start+n]
	}
	return dst
}

// computedOf adds the newly computed blocks of s to s.computed, and returns this list. The list never includes the last
// block of the table. If a block before the last one is not computed, computedOf leaves it out, but still adds the
// computed blocks after it. Since the list then has a gap, later calls add nothing to it (as in vLLM).
func (m *Manager) computedOf(s *Seq) []int32 {
	last := len(s.table) - 1
	if s.gap || last < 0 {
		return s.computed
	}
	for _, id := range s.table[min(len(s.computed), last):last] {
		if m.prefix.blocks[id].computed {
			s.computed = append(s.computed, id)
		}
	}
	s.gap = len(s.computed) < last
	return s.computed
}
