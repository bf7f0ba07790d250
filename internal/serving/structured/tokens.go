package structured

import (
	"cmp"
	"slices"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/serving/structured/lexeme"
)

// tokenSet is a set of tokens: a bitmask if there are many, otherwise a list.
type tokenSet struct {
	mask []uint64
	list []int32
}

// manyTokens is the number of tokens from which a set is a bitmask.
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

// stateTokens holds the tokens that can follow when a lexeme is in a certain state.
type stateTokens struct {
	inner    tokenSet         // tokens whose bytes all belong to the lexeme
	spanning []spanningTokens // tokens that complete the lexeme and have more bytes after it
	excluded tokenSet         // tokens of inner and spanning that are not allowed
	large    bool             // it takes too much memory to be cached
	work     int              // units that finding them is charged
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

// spanningTokens holds the tokens that complete a lexeme with the given tag and have more bytes after it. These tokens
// are below the nodes of the vocabulary's trie at which the lexeme ends. If there are few such nodes, they are merged
// into the trie suffixes, which has only the bytes after the lexeme. If there are many, suffixes is empty, and the
// nodes are listed in the field nodes.
type spanningTokens struct {
	tag      int32
	suffixes trie
	nodes    []int32
}

// maxMerged is the largest number of nodes of the vocabulary's trie that are merged into the field suffixes of
// spanningTokens.
const maxMerged = 10_000

// computeTokens finds the tokens that can follow in a state of a lexeme. If the lexeme ends with the tag ignoredTag, no
// text can follow it. So computeTokens does not look for tokens that complete the lexeme with this tag and have more
// bytes after it. Free text can end with this tag in most states, so this saves much work. The error is the meter's.
// What is charged depends only on what can follow, so it is the same for states of the same lexeme.Identity.
func (v *Vocabulary) computeTokens(l *lexeme.Lexeme, state, ignoredTag int32, m *meter.Meter) (*stateTokens, error) {
	before := m.Spent()
	w := walk{v: v, l: l, f: &stateTokens{}, words: v.Words(), meter: m, ignoredTag: ignoredTag, ends: map[int32][]int32{}}
	w.states, w.rows = make([]int32, v.longest+1), make([]*lexeme.Row, v.longest+1)
	w.states[0], w.rows[0] = state, l.Row(state)
	for i, b := range v.trie.first {
		if l.Next(state, b) != lexeme.None {
			if err := w.visit(v.trie.top[i]); err != nil {
				return nil, err
			}
		}
	}
	for tag, nodes := range w.ends {
		c := spanningTokens{tag: tag}
		if len(nodes) > v.maxMerged {
			c.nodes, w.f.large = nodes, true
		} else {
			c.suffixes.merge(&v.trie, nodes, 0)
		}
		if err := m.Spend(1 + len(c.suffixes.nodes)); err != nil {
			return nil, err
		}
		w.f.spanning = append(w.f.spanning, c)
	}
	w.f.work = m.Spent() - before
	return w.f, nil
}

// walk finds the tokens that can follow in a state of a lexeme. It visits the nodes below a node of the vocabulary's
// trie only if the lexeme allows the bytes on the path to this node.
type walk struct {
	v          *Vocabulary
	l          *lexeme.Lexeme
	f          *stateTokens
	words      int
	meter      *meter.Meter
	ignoredTag int32
	states     []int32           // of the lexeme, at each node on the way to the current one
	rows       []*lexeme.Row     // of states
	ends       map[int32][]int32 // the nodes at which the lexeme may end, by tag
}

// A walk charges one unit for nodesPerUnit nodes. It also charges the nodes that it need not visit because the lexeme
// loops: whether it loops is not the same in all lexemes in which the same tokens can follow.
const nodesPerUnit = 8

// nodesPerCharge is how many nodes a walk passes before it charges the meter.
const nodesPerCharge = 100 * nodesPerUnit

// visit visits a node and its descendants.
func (w *walk) visit(node int32) error {
	nodes := w.v.trie.nodes
	passed := 0
	for i := node; i < nodes[node].end; {
		if passed++; passed >= nodesPerCharge {
			if err := w.meter.Spend(passed / nodesPerUnit); err != nil {
				return err
			}
			passed %= nodesPerUnit
		}
		n := &nodes[i]
		next := w.rows[n.depth-1].Known(n.b)
		if next < lexeme.None {
			next = w.l.Next(w.states[n.depth-1], n.b)
		}
		if next == lexeme.None {
			i = n.end
			continue
		}
		row := w.l.Row(next)
		ends := row.Tag != lexeme.None && row.Tag != w.ignoredTag
		if n.count > 0 {
			w.f.inner.add(w.v.trie.tokensAt(n), w.words)
		}
		if n.uses >= 0 && !ends && w.l.Next(next, nodes[i+1].b) == next && w.loops(next, n) {
			w.f.inner.add(w.v.trie.tokensBelow(n), w.words)
			passed += int(n.end - i - 1)
			i = n.end
			continue
		}
		w.states[n.depth], w.rows[n.depth] = next, row
		if n.parent && ends {
			w.ends[row.Tag] = append(w.ends[row.Tag], i)
		}
		i++
	}
	return w.meter.Spend(1 + passed/nodesPerUnit)
}

// loops reports whether the lexeme stays in the given state for all bytes below a node of the trie.
func (w *walk) loops(state int32, n *trieNode) bool {
	loop, uses := &w.l.Loops(state).Loop, &w.v.trie.uses[n.uses]
	return uses[0]&^loop[0]|uses[1]&^loop[1]|uses[2]&^loop[2]|uses[3]&^loop[3] == 0
}

// exceptions returns the tokens that complete an excluded name. The lexeme l must be one that Others
// returned: it matches all names except the excluded ones. The error is the meter's.
func (v *Vocabulary) exceptions(l *lexeme.Lexeme, state int32, m *meter.Meter) (tokenSet, error) {
	var out tokenSet
	if !l.CanExclude(state) {
		return out, nil
	}
	words := v.Words()
	states := make([]int32, v.longest+1)
	states[0] = state
	nodes := v.trie.nodes
	for i := int32(1); i < int32(len(nodes)); {
		if err := m.Spend(1); err != nil {
			return out, err
		}
		n := &nodes[i]
		next := l.Next(states[n.depth-1], n.b)
		switch {
		case next == lexeme.None && n.b == '"':
			out.add(v.trie.tokensAt(n), words)
			out.add(v.trie.tokensBelow(n), words)
			i = n.end
		case next == lexeme.None || !l.CanExclude(next):
			i = n.end
		default:
			states[n.depth] = next
			i++
		}
	}
	return out, nil
}

// merge adds a node to t that has the children of the given nodes of another trie, with all their
// descendants.
func (t *trie) merge(other *trie, nodes []int32, depth uint16) {
	id := len(t.nodes)
	t.nodes = append(t.nodes, trieNode{depth: depth, first: int32(len(t.tokens))})
	if depth > 0 { // tokens that end at depth 0 end with the lexeme: stateTokens.inner has them
		t.nodes[id].b = other.nodes[nodes[0]].b
		for _, n := range nodes {
			t.tokens = append(t.tokens, other.tokensAt(&other.nodes[n])...)
		}
		t.nodes[id].count = int32(len(t.tokens)) - t.nodes[id].first
	}
	var children []int32
	for _, n := range nodes {
		for child := n + 1; child < other.nodes[n].end; child = other.nodes[child].end {
			children = append(children, child)
		}
	}
	t.nodes[id].parent = len(children) > 0
	slices.SortFunc(children, func(a, b int32) int { return cmp.Compare(other.nodes[a].b, other.nodes[b].b) })
	for len(children) > 0 {
		b, count := other.nodes[children[0]].b, 1
		for count < len(children) && other.nodes[children[count]].b == b {
			count++
		}
		t.merge(other, children[:count], depth+1)
		children = children[count:]
	}
	t.nodes[id].end = int32(len(t.nodes))
}
