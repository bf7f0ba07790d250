package v0

import (
	"fmt"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/reqtable"
)

// A prefix is the state of prefix caching on the GPU: which block holds which prefix, and
// the evictor, a queue of the cached blocks that no table names. The block that no table
// has named for the longest time comes first (vllm/v0/RULES.md §6).
type prefix struct {
	hash    blockhash.Fast
	cached  map[blockhash.Hash]int32
	blocks  []cachedBlock // one for each id
	evictor *reqtable.Queue
	touched []int32 // blocks promoted since the last MarkComputed
}

type cachedBlock struct {
	key      blockhash.Hash
	tokens   int     // of the prefix the key stands for; 0: no key
	access   float64 // last time; -1: never
	computed bool
	touched  bool
}

func newPrefix(blocks int) *prefix {
	return &prefix{
		hash: blockhash.NewFast(), cached: map[blockhash.Hash]int32{},
		blocks: make([]cachedBlock, blocks), evictor: reqtable.NewQueues(blocks, 1)[0],
	}
}

// track starts the tracker of a block that is now in use.
func (p *prefix) track(id int32, computed bool) {
	p.blocks[id].access, p.blocks[id].computed = -1, computed
}

// evict removes one block from the evictor. It walks from the beginning, stops at a block that was
// accessed later than the best one so far, and prefers the block at the end of the longest prefix.
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

// register makes id the block that holds the prefix of n tokens.
func (p *prefix) register(id int32, key *blockhash.Hash, tokens int) {
	b := &p.blocks[id]
	b.key, b.tokens = *key, tokens
	p.cached[*key] = id
	if !b.touched {
		b.touched = true
		p.touched = append(p.touched, id)
	}
}

// key is the key of the full block i of s, whose predecessors have theirs.
func (m *Manager) key(s *Seq, i int) (key blockhash.Hash) {
	parent := blockhash.Hash{}
	if i > 0 {
		parent = m.prefix.blocks[s.table[i-1]].key
	}
	m.prefix.hash.Sum(&key, &parent, s.Tokens[i*m.config.BlockSize:(i+1)*m.config.BlockSize], nil)
	return key
}

// allocateChunk returns the block for the full block i of a prompt: the cached
// one, or a new one that is cached from now on.
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

// adopt adds a reference to a cached block, which may be evictable.
func (m *Manager) adopt(id int32) {
	if m.gpu.Ref(id) {
		m.prefix.evictor.Remove(id)
		m.prefix.track(id, true)
	}
}

// promote caches block i of s, which has just become full; if another block
// holds the same prefix, s gets that one.
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

// inUse counts the full blocks of a prompt that are in use by other tables, so that Allocate takes
// no free block for them. Other hits take a free block as misses do, and may be evicted first.
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

// walkKeys computes the keys of the full blocks from block first on, up to the
// token end, after parent.
func (m *Manager) walkKeys(s *Seq, first, end int, parent blockhash.Hash, f func(key *blockhash.Hash) bool) {
	size := m.config.BlockSize
	for start := first * size; start+size <= end; start += size {
		m.prefix.hash.Sum(&parent, &parent, s.Tokens[start:start+size], nil)
		if !f(&parent) {
			return
		}
	}
}

// promotionsHelp reports whether an append needs fewer free blocks than it makes copies, because a
// promotion to a block in use frees one in time.
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

// freeCached is Free for a table whose full blocks have keys: they stay cached,
// as old as the last access.
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

// Access records that the blocks of the sequences are accessed at time now. That takes effect when
// they are freed (vllm/v0/RULES.md §6).
func (m *Manager) Access(now float64, group ...*Seq) {
	for _, s := range group {
		s.access, s.accessed = now, true
	}
}

// MarkComputed says that the blocks promoted so far hold their keys and values. The
// scheduler calls it when it has made a batch (vllm/v0/RULES.md §6).
func (m *Manager) MarkComputed() {
	if m.prefix == nil {
		return
	}
	for _, id := range m.prefix.touched {
		m.prefix.blocks[id].computed, m.prefix.blocks[id].touched = true, false
	}
	m.prefix.touched = m.prefix.touched[:0]
}

// Computed appends the blocks at the beginning of a group's sequences that need
// not be computed: of one sequence its own, of several the longest common
// beginning of those that have any (vllm/v0/RULES.md §6).
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

// computedOf extends the list of s by the blocks computed since. It omits the last block.
// The first call that finds a block that is not computed skips it, adds the computed blocks
// after it, and is the last one that changes the list.
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
