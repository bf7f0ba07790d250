package structured

import (
	"cmp"
	"slices"

	"llmmemory/internal/serving/structured/lexeme"
)

// tokenSet is a set of tokens: a bitmask if there are many, otherwise a list.
type tokenSet struct {
	mask []uint64
	list []int32
}

// manyTokens is the number of tokens from which a bitmask is faster than a list.
const manyTokens = 512

// add adds tokens to the set. The set becomes a bitmask when it has many tokens.
func (s *tokenSet) add(tokens []int32, words int) {
	if s.mask == nil {
		if len(s.list)+len(tokens) < manyTokens {
			s.list = append(s.list, tokens...)
			return
		}
		s.mask = make([]uint64, words)
		list := s.list
		s.list = nil
		s.add(list, words)
	}
	for _, t := range tokens {
		s.mask[t>>6] |= 1 << (t & 63)
	}
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

// fit holds the tokens that can follow when a lexeme is in a certain state.
type fit struct {
	inside    tokenSet   // those whose bytes all belong to the lexeme
	crossings []crossing // those that complete the lexeme and go on after it
	except    tokenSet   // those that are not allowed although inside or crossings allow them
	large     bool       // it takes too much memory to be kept
}

// removeFrom clears the bits of the set in a mask.
func (s tokenSet) removeFrom(mask []uint64) {
	for i, word := range s.mask {
		mask[i] &^= word
	}
	for _, t := range s.list {
		mask[t>>6] &^= 1 << (t & 63)
	}
}

// crossing holds tokens that complete a lexeme with the given tag and go on after it. The trie rest has the bytes of
// these tokens after the end of the lexeme. If rest would have too many nodes, it is left empty. The field nodes then
// has the nodes of the vocabulary's trie at which the lexeme ends.
type crossing struct {
	tag   int32
	rest  trie
	nodes []int32
}

// maxMerged is the largest number of nodes of the vocabulary's trie that are merged into the trie of a
// crossing.
const maxMerged = 10_000

// fit computes which tokens fit a state of a lexeme. If the lexeme ends with the tag ignored, only a special
// token or the end of the answer can follow. So fit leaves out tokens that have more bytes after such an end.
// Free text can end with that tag in most states, so this saves much work.
func (v *Vocabulary) fit(l *lexeme.Lexeme, state, ignored int32) *fit {
	w := walk{v: v, l: l, f: &fit{}, words: v.Words(), ignored: ignored, ends: map[int32][]int32{}}
	w.states, w.rows = make([]int32, v.longest+1), make([]*lexeme.Row, v.longest+1)
	w.states[0], w.rows[0] = state, l.Row(state)
	for i, b := range v.trie.first {
		if l.Next(state, b) != lexeme.None {
			w.below(v.trie.top[i])
		}
	}
	for tag, at := range w.ends {
		c := crossing{tag: tag}
		if len(at) > v.maxMerged {
			c.nodes, w.f.large = at, true
		} else {
			c.rest.merge(&v.trie, at, 0)
		}
		w.f.crossings = append(w.f.crossings, c)
	}
	return w.f
}

// walk visits the nodes of the vocabulary's trie whose bytes a lexeme allows after a state.
type walk struct {
	v       *Vocabulary
	l       *lexeme.Lexeme
	f       *fit
	words   int
	ignored int32
	states  []int32           // of the lexeme, at each node on the way to the current one
	rows    []*lexeme.Row     // of states
	ends    map[int32][]int32 // the nodes at which the lexeme may end, by tag
}

// below visits a node and its descendants.
func (w *walk) below(from int32) {
	nodes := w.v.trie.nodes
	for i := from; i < nodes[from].end; {
		n := &nodes[i]
		to := w.rows[n.depth-1].Known(n.b)
		if to < lexeme.None {
			to = w.l.Next(w.states[n.depth-1], n.b)
		}
		if to == lexeme.None {
			i = n.end
			continue
		}
		row := w.l.Row(to)
		ends := row.Tag != lexeme.None && row.Tag != w.ignored
		if n.count > 0 {
			w.f.inside.add(w.v.trie.here(n), w.words)
		}
		if n.uses >= 0 && !ends && w.l.Next(to, nodes[i+1].b) == to && w.loops(to, n) {
			w.f.inside.add(w.v.trie.below(n), w.words)
			i = n.end
			continue
		}
		w.states[n.depth], w.rows[n.depth] = to, row
		if n.parent && ends {
			w.ends[row.Tag] = append(w.ends[row.Tag], i)
		}
		i++
	}
}

// loops reports whether the lexeme stays in the given state for all bytes below a node of the trie.
func (w *walk) loops(state int32, n *trieNode) bool {
	loop, uses := &w.l.Loops(state).Loop, &w.v.trie.uses[n.uses]
	return uses[0]&^loop[0]|uses[1]&^loop[1]|uses[2]&^loop[2]|uses[3]&^loop[3] == 0
}

// exceptions returns the tokens that complete an excluded name. The lexeme l must be one that Others
// returned: it matches all names except the excluded ones.
func (v *Vocabulary) exceptions(l *lexeme.Lexeme, state int32) tokenSet {
	var out tokenSet
	if !l.CanExclude(state) {
		return out
	}
	words := v.Words()
	states := make([]int32, v.longest+1)
	states[0] = state
	nodes := v.trie.nodes
	for i := int32(1); i < int32(len(nodes)); {
		n := &nodes[i]
		to := l.Next(states[n.depth-1], n.b)
		switch {
		case to == lexeme.None && n.b == '"':
			out.add(v.trie.here(n), words)
			out.add(v.trie.below(n), words)
			i = n.end
		case to == lexeme.None || !l.CanExclude(to):
			i = n.end
		default:
			states[n.depth] = to
			i++
		}
	}
	return out
}

// merge adds a node to t that has the children of the given nodes of another trie, with all their
// descendants.
func (t *trie) merge(from *trie, at []int32, depth uint16) {
	id := len(t.nodes)
	t.nodes = append(t.nodes, trieNode{depth: depth, first: int32(len(t.tokens))})
	if depth > 0 { // tokens that end at depth 0 end with the lexeme: fit.inside has them
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
