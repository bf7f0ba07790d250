package kvcache

import (
	"fmt"
	"hash/maphash"
)

// A memory models the keys and values in the blocks. Each slot contains a number that depends on all tokens up to its
// own. A request must attend only to the numbers of its own tokens, however its blocks were shared, copied, evicted
// and hit.
type memory struct {
	seed   maphash.Seed
	blocks map[address]uint64
}

type address struct {
	group  int
	block  int32
	offset int
}

func newMemory() *memory { return &memory{maphash.MakeSeed(), map[address]uint64{}} }

// values returns the numbers of the tokens of r, followed by those of the given number of draft tokens.
func (m *memory) values(r *Request, drafts int) []uint64 {
	var h maphash.Hash
	h.SetSeed(m.seed)
	h.WriteString(r.content.Extras.Salt)
	var values []uint64
	for i := range r.NumTokens() + drafts {
		token := int32(-1) // a draft
		if i < r.NumTokens() {
			token = r.content.Tokens[i]
		}
		fmt.Fprint(&h, token, " ")
		values = append(values, h.Sum64())
	}
	return values
}

// step executes the pending copies. Then it writes the computed tokens of r to its blocks. The token at position start
// is the first that it writes.
func (m *memory) step(c *Cache, r *Request, start int) {
	for _, p := range taken(c, 0).Copies {
		for i := range c.groups[p.Group].BlockSize {
			m.blocks[address{p.Group, p.Dst, i}] = m.blocks[address{p.Group, p.Src, i}]
		}
	}
	values := m.values(r, max(0, r.NumComputedTokens-r.NumTokens()))
	for g := range c.groups {
		size := c.groups[g].BlockSize
		for i := start; i < r.NumComputedTokens; i++ {
			if at := i / size; at < len(r.tables[g].ids) {
				if id := r.tables[g].ids[at]; id != 0 {
					m.blocks[address{g, id, i % size}] = values[i]
				}
			}
		}
	}
}

func (m *memory) verify(c *Cache, r *Request) error {
	values := m.values(r, max(0, r.NumComputedTokens-r.NumTokens()))
	for g := range c.groups {
		spec := c.groups[g].Group
		if spec.Kind == Mamba {
			continue
		}
		spec.Retained = 0 // those are kept, but no request attends to them
		for i := spec.skipped(r.NumComputedTokens); i < r.NumComputedTokens; i++ {
			id := int32(0)
			if at := i / spec.BlockSize; at < len(r.tables[g].ids) {
				id = r.tables[g].ids[at]
			}
			if id == 0 {
				return fmt.Errorf("token %d of %d has no block in group %d", i, r.NumComputedTokens, g)
			}
			if m.blocks[address{g, id, i % spec.BlockSize}] != values[i] {
				return fmt.Errorf("token %d of %d, group %d, block %d: the content is another request's", i, r.NumComputedTokens, g, id)
			}
		}
	}
	return nil
}
