package structured

import (
	"cmp"
	"slices"

	"llmmemory/internal/serving/structured/lexeme"
)

// tokenSet is a set of tokens: a bitmask if they are many, else a list.
type tokenSet struct {
	mask []uint64
	list []int32
}

// manyTokens is from how many tokens on a bitmask is faster than a list.
const manyTokens = 512

func newTokenSet(tokens []int32, words int) tokenSet {
	if len(tokens) < manyTokens {
		return tokenSet{list: slices.Clone(tokens)}
	}
	s := tokenSet{mask: make([]uint64, words)}
	for _, t := range tokens {
		s.mask[t>>6] |= 1 << (t & 63)
	}
	return s
}

// addTo sets the bits of the set in a mask.
func (s tokenSet) addTo(mask []uint64) {
	for i, word := range s.mask {
		mask[i] |= word
	}
	for _, t := range s.list {
		mask[t>>6] |= 1 << (t & 63)
	}
}

// fit is which tokens can follow in a state of a lexeme.
type fit struct {
	inside    tokenSet // those that do not go on after the lexeme's end
	crossings []crossing
}

// crossing is what tokens have after the end of a lexeme with a tag.
type crossing struct {
	tag  int32
	rest trie
}

// fit walks the vocabulary from a state of a lexeme.
func (v *Vocabulary) fit(l *lexeme.Lexeme, state int32) *fit {
	states := make([]int32, v.longest+1)
	states[0] = state
	var tokens []int32
	ends := map[int32][]int32{}
	nodes := v.trie.nodes
	for i := int32(1); i < int32(len(nodes)); {
		n := &nodes[i]
		to := l.Next(states[n.depth-1], n.b)
		if to == lexeme.None {
			i = n.end
			continue
		}
		states[n.depth] = to
		if n.count > 0 {
			tokens = append(tokens, v.trie.here(n)...)
		}
		if n.parent {
			if tag := l.Tag(to); tag != lexeme.None {
				ends[tag] = append(ends[tag], i)
			}
		}
		i++
	}
	f := &fit{inside: newTokenSet(tokens, v.Words())}
	for tag, at := range ends {
		c := crossing{tag: tag}
		c.rest.merge(&v.trie, at, 0)
		f.crossings = append(f.crossings, c)
	}
	return f
}

// merge adds a node for some nodes of another trie, and nodes for all that is below them.
func (t *trie) merge(from *trie, at []int32, depth uint16) {
	id := len(t.nodes)
	t.nodes = append(t.nodes, trieNode{depth: depth, first: int32(len(t.tokens))})
	if depth > 0 { // at depth 0, what ends is inside the lexeme
		t.nodes[id].b = from.nodes[at[0]].b
		for _, n := range at {
			t.tokens = append(t.tokens, from.here(&from.nodes[n])...)
		}
		t.nodes[id].count = int32(len(t.tokens)) - t.nodes[id].first
	}
	var children []int32
	for _, n := range at {
		for child := n + 1; child < from.nodes[n].end; child = from.nodes[child].end {
			children = append(children, child)
		}
	}
	t.nodes[id].parent = len(children) > 0
	slices.SortFunc(children, func(a, b int32) int { return cmp.Compare(from.nodes[a].b, from.nodes[b].b) })
	for len(children) > 0 {
		b, same := from.nodes[children[0]].b, 1
		for same < len(children) && from.nodes[children[same]].b == b {
			same++
		}
		t.merge(from, children[:same], depth+1)
		children = children[same:]
	}
	t.nodes[id].end = int32(len(t.nodes))
}
