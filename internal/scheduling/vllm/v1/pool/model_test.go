package pool

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/testkit/rapidtest"
)

// A model implements vllm/v1/RULES.md §1 and §2 with lists and maps, to compare the Pool with.
type model struct {
	caching bool
	queue   []int32
	counts  []int32
	keys    map[int32][]Key // primary one first
	tokens  map[int32]int
	index   map[Key][]int32
	many    map[Key]bool // had two blocks since it came into the index
	events  []string
}

func newModel(blocks int, caching bool) *model {
	m := &model{caching: caching, counts: make([]int32, blocks)}
	for id := 1; id < blocks; id++ {
		m.queue = append(m.queue, int32(id))
	}
	m.clear()
	return m
}

func (m *model) clear() {
	m.keys, m.tokens = map[int32][]Key{}, map[int32]int{}
	m.index, m.many = map[Key][]int32{}, map[Key]bool{}
}

func (m *model) get(n int) ([]int32, bool) {
	if n > len(m.queue) {
		return nil, false
	}
	ids := slices.Clone(m.queue[:n])
	m.queue = slices.Clone(m.queue[n:])
	for _, id := range ids {
		m.forget(id)
		m.counts[id] = 1
	}
	return ids, true
}

func (m *model) forget(id int32) {
	for _, k := range m.keys[id] {
		m.index[k] = slices.DeleteFunc(m.index[k], func(o int32) bool { return o == id })
		if len(m.index[k]) == 0 {
			delete(m.index, k)
			delete(m.many, k)
		}
		m.events = append(m.events, "R"+k.Hash.Short())
	}
	delete(m.keys, id)
	delete(m.tokens, id)
}

func (m *model) insert(id int32, k Key, tokens int) {
	if slices.Contains(m.keys[id], k) {
		return
	}
	if len(m.keys[id]) == 0 {
		m.tokens[id] = tokens
	}
	m.keys[id] = append(m.keys[id], k)
	m.index[k] = append(m.index[k], id)
	m.many[k] = m.many[k] || len(m.index[k]) > 1
}

func (m *model) touch(ids []int32) {
	for _, id := range ids {
		if id == Null {
			continue
		}
		m.queue = slices.DeleteFunc(m.queue, func(o int32) bool { return o == id })
		m.counts[id]++
	}
}

func (m *model) free(ids []int32) {
	var first, last []int32
	for _, id := range ids {
		if id == Null {
			continue
		}
		if m.counts[id]--; m.counts[id] == 0 {
			if len(m.keys[id]) == 0 || !m.caching {
				first = append(first, id)
			} else {
				last = append(last, id)
			}
		}
	}
	m.queue = slices.Concat(first, m.queue, last)
}

// content returns tokens of a small alphabet, so that keys repeat.
func content(t *rapid.T) *Content {
	c := &Content{Tokens: rapid.SliceOfN(rapid.Int32Range(0, 1), 8, 40).Draw(t, "tokens")}
	c.Extend(blockhash.LE{}, 4)
	return c
}

func (m *model) inUse() (ids []int32) {
	for id, count := range m.counts {
		if count > 0 {
			ids = append(ids, int32(id))
		}
	}
	return ids
}

func TestPoolEqualsTheModel(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		blocks := rapid.IntRange(1, 12).Draw(t, "blocks")
		caching := rapid.Bool().Draw(t, "caching")
		p, err := New(Config{NumGPUBlocks: blocks, EnableCaching: caching, HashBlockSize: 4, EnableEvents: true})
		require.NoError(t, err)
		m := newModel(blocks, caching)
		any := rapid.Int32Range(0, int32(blocks-1))
		used := func(t *rapid.T) int32 {
			if ids := m.inUse(); len(ids) > 0 {
				return rapid.SampledFrom(ids).Draw(t, "used")
			}
			t.Skip("no block is in use")
			return 0
		}
		t.Repeat(map[string]func(*rapid.T){
			"get": func(t *rapid.T) {
				n := rapid.IntRange(0, 5).Draw(t, "n")
				ids, err := p.Get(nil, n)
				want, ok := m.get(n)
				require.Equal(t, ok, err == nil)
				require.Equal(t, ok, !errors.Is(err, ErrNoBlocks))
				require.Equal(t, len(want), len(ids))
				if n > 0 {
					require.Equal(t, want, ids)
				}
			},
			"touch": func(t *rapid.T) {
				ids := rapid.SliceOfN(any, 0, 5).Draw(t, "ids")
				p.Touch(ids)
				m.touch(ids)
			},
			"free": func(t *rapid.T) {
				var ids []int32
				left := slices.Clone(m.counts)
				for _, id := range rapid.SliceOfN(any, 0, 6).Draw(t, "ids") {
					if left[id]--; id == Null || left[id] >= 0 {
						ids = append(ids, id)
					}
				}
				p.Free(ids)
				slices.Reverse(ids)
				m.free(ids)
			},
			"register": func(t *rapid.T) {
				if !caching {
					t.Skip("caching is off")
				}
				c := content(t)
				at := rapid.IntRange(0, len(c.Tokens)/8-1).Draw(t, "at")
				id := used(t)
				if m.tokens[id] >= (at+1)*8 {
					t.Skip("the block is full")
				}
				table := make([]int32, at+1)
				table[at] = id
				group := rapid.Uint32Range(0, 1).Draw(t, "group")
				p.Register(c, table, at, at+1, 8, group, nil)
				m.forget(id)
				m.insert(id, Key{c.Hashes[2*at+1], group}, (at+1)*8)
				m.events = append(m.events, "S"+c.Hashes[2*at+1].Short())
			},
			"register a part": func(t *rapid.T) {
				if !caching {
					t.Skip("caching is off")
				}
				c := content(t)
				n := 2*rapid.IntRange(0, (len(c.Hashes)-1)/2).Draw(t, "n") + 1
				id := used(t)
				group := rapid.Uint32Range(0, 1).Draw(t, "group")
				k := Key{c.Hashes[n-1], group}
				got, ok := p.RegisterPart(c, id, 4*n, group)
				require.True(t, ok)
				require.Equal(t, k, got)
				if known := slices.Contains(m.keys[id], k); !known {
					if m.tokens[id] < 4*n {
						m.forget(id)
					}
					m.events = append(m.events, "S"+c.Hashes[n-1].Short())
				}
				m.insert(id, k, 4*n)
			},
			"move": func(t *rapid.T) {
				src, dst := used(t), used(t)
				if src == dst || len(m.keys[dst]) > 0 {
					t.Skip("the other block has a key")
				}
				p.Move(src, dst)
				keys, tokens, events := m.keys[src], m.tokens[src], m.events
				m.forget(src)
				m.events = events
				for _, k := range keys {
					m.insert(dst, k, tokens)
				}
			},
			"evict": func(t *rapid.T) {
				id := any.Draw(t, "id")
				p.Evict(id)
				m.forget(id)
			},
			"reset": func(t *rapid.T) {
				ok := len(m.inUse()) == 0
				require.Equal(t, ok, p.Reset())
				if ok {
					m.clear()
					m.events = append(m.events, "C")
				}
			},
			"": func(t *rapid.T) { compare(t, p, m) },
		})
	})
}

func compare(t *rapid.T, p *Pool, m *model) {
	require.NoError(t, p.View.Check())
	for id, count := range m.counts {
		require.Equal(t, count, p.View.Count(int32(id)))
	}
	require.Equal(t, append([]int32{}, m.queue...), slices.AppendSeq([]int32{}, p.View.Queue()))
	require.Equal(t, len(m.queue), p.View.NumFree())
	require.Equal(t, len(m.index), p.View.NumKeys())
	for id := range m.counts {
		key, tokens, ok := p.View.Primary(int32(id))
		require.Equal(t, len(m.keys[int32(id)]) > 0, ok)
		if ok {
			require.Equal(t, m.keys[int32(id)], p.keysOf(int32(id)))
			require.Equal(t, m.keys[int32(id)][0], key)
			require.Equal(t, m.tokens[int32(id)], tokens)
		}
	}
	for k, ids := range m.index {
		id, ok := p.Lookup(&k.Hash, k.Group)
		require.True(t, ok)
		require.Equal(t, ids[0], id, "the block registered first")
	}
	rings := 0
	for _, r := range p.View.Rings() {
		rings++
		require.True(t, m.many[r.Key])
		require.Equal(t, m.index[r.Key], r.Blocks)
	}
	require.Equal(t, len(m.many)-countFalse(m.many), rings)
	var events Events
	p.View.TakeEvents(&events)
	got := []string{}
	for i := range events.List {
		e := &events.List[i]
		name := "C"
		if e.Kind != Cleared {
			name = string("SR"[e.Kind]) + events.Hashes(e)[0].Short()
		}
		got = append(got, name)
	}
	require.Equal(t, append([]string{}, m.events...), got)
	m.events = nil
}

func countFalse(m map[Key]bool) (n int) {
	for _, v := range m {
		if !v {
			n++
		}
	}
	return n
}
