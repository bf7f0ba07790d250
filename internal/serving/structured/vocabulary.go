package structured

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"llmmemory/internal/serving/structured/lexeme"
)

// maxTokenBytes is the longest token that a vocabulary may have.
const maxTokenBytes = 1024

// Vocabulary contains the tokens of a model. It is safe for concurrent use.
type Vocabulary struct {
	tokens  [][]byte
	stop    []int32
	ends    []string // names of the special tokens that end an answer
	names   int32    // the node of the trie below which the names of the other special tokens are, or 0
	trie    trie
	longest int

	maxMerged int // as the constant; a test sets other values

	mutex sync.Mutex
	cache map[lexeme.Identity]*stateTokens
}

// NewVocabulary returns the vocabulary of a model: the bytes of each token, the names of special tokens, and
// the tokens that end an answer. A special token is allowed only where a form names it. A token without bytes
// and without a name is allowed only at the end of an answer.
func NewVocabulary(tokens [][]byte, special map[int]string, stop []int) (*Vocabulary, error) {
	if len(tokens) == 0 {
		return nil, errors.New("a vocabulary without tokens")
	}
	v := &Vocabulary{tokens: slices.Clone(tokens), maxMerged: maxMerged, cache: map[lexeme.Identity]*stateTokens{}}
	for id, token := range v.tokens {
		if lexeme.HasSpecial(token) { // no text has such bytes
			v.tokens[id] = nil
		}
	}
	for id, name := range special {
		if id < 0 || id >= len(tokens) {
			return nil, fmt.Errorf("the special token %d is not in the vocabulary, which has %d tokens", id, len(tokens))
		}
		if name == "" {
			continue
		}
		if slices.Contains(stop, id) {
			v.ends = append(v.ends, name)
		} else {
			v.tokens[id] = lexeme.SpecialBytes(name)
		}
	}
	tokens = v.tokens
	for _, token := range stop {
		if token < 0 || token >= len(tokens) {
			return nil, fmt.Errorf("the end token %d is not in the vocabulary, which has %d tokens", token, len(tokens))
		}
		v.stop = append(v.stop, int32(token))
	}
	ids := make([]int32, 0, len(tokens))
	for id, token := range tokens {
		if len(token) > maxTokenBytes {
			return nil, fmt.Errorf("token %d has %d bytes, more than %d", id, len(token), maxTokenBytes)
		}
		if len(token) > 0 && !slices.Contains(v.stop, int32(id)) {
			ids = append(ids, int32(id))
			v.longest = max(v.longest, len(token))
		}
	}
	slices.SortFunc(ids, func(a, b int32) int { return cmp.Or(bytes.Compare(tokens[a], tokens[b]), cmp.Compare(a, b)) })
	v.trie.build(tokens, ids)
	if last := len(v.trie.top) - 1; last >= 0 && lexeme.HasSpecial(v.trie.first[last:]) {
		v.names = v.trie.top[last]
	}
	return v, nil
}

// special returns the first position in a text at which the name of a special token begins, and the longest
// such name there. If there is none, it returns the length of the text and "".
func (v *Vocabulary) special(text string) (index int, name string) {
	for i := range len(text) {
		if n := v.specialAt(text[i:]); n > 0 {
			return i, text[i : i+n]
		}
	}
	return len(text), ""
}

// specialAt returns the length of the longest name of a special token that is a prefix of text. If there is no such
// name, it returns 0.
func (v *Vocabulary) specialAt(text string) (longest int) {
	for _, name := range v.ends {
		if strings.HasPrefix(text, name) {
			longest = max(longest, len(name))
		}
	}
	nodes, node := v.trie.nodes, v.names
	for i := 0; node > 0; i++ {
		if nodes[node].count > 0 {
			longest = max(longest, i)
		}
		if i == len(text) {
			break
		}
		child := node + 1
		for child < nodes[node].end && nodes[child].b != text[i] {
			child = nodes[child].end
		}
		if child == nodes[node].end {
			break
		}
		node = child
	}
	return longest
}

// Words returns the length of a mask.
func (v *Vocabulary) Words() int { return (len(v.tokens) + 63) / 64 }

// trie is a tree of the bytes of texts. The list nodes has the nodes in preorder.
type trie struct {
	nodes  []trieNode
	tokens []int32     // of the nodes, one after another
	uses   [][4]uint64 // the bytes below each node that has many descendants
	top    []int32     // the children of the first node
	first  []byte      // their bytes
}

// manyNodes decides which nodes of a trie have an entry in trie.uses: those with at least this number of descendants.
const manyNodes = 128

type trieNode struct {
	end    int32 // of the node's descendants
	first  int32 // of the tokens that end here
	count  int32
	depth  uint16
	uses   int32 // place in trie.uses, or -1
	b      byte
	parent bool // has children
}

// build fills the trie with the tokens of the given ids. The ids must be sorted by the bytes of their tokens.
func (t *trie) build(tokens [][]byte, ids []int32) {
	t.tokens = ids
	t.nodes = append(t.nodes, trieNode{})
	path := []int32{0} // nodes on the way to the last token
	var last []byte
	for i, id := range ids {
		token := tokens[id]
		common := 0
		for common < len(last) && common < len(token) && last[common] == token[common] {
			common++
		}
		t.leave(&path, common)
		for depth := common; depth < len(token); depth++ {
			t.nodes[path[depth]].parent = true
			path = append(path, int32(len(t.nodes)))
			t.nodes = append(t.nodes, trieNode{first: int32(i), depth: uint16(depth + 1), b: token[depth]})
		}
		t.nodes[path[len(token)]].count++
		last = token
	}
	t.leave(&path, -1)
	t.findUses()
	for child := int32(1); child < int32(len(t.nodes)); child = t.nodes[child].end {
		t.top, t.first = append(t.top, child), append(t.first, t.nodes[child].b)
	}
}

// findUses finds the bytes below each node that has many descendants.
func (t *trie) findUses() {
	var ancestors []int32 // the nodes around the current one that have many descendants
	for i := range t.nodes {
		n := &t.nodes[i]
		for len(ancestors) > 0 && t.nodes[ancestors[len(ancestors)-1]].end <= int32(i) {
			ancestors = ancestors[:len(ancestors)-1]
		}
		for _, ancestor := range ancestors {
			t.uses[t.nodes[ancestor].uses][n.b/64] |= 1 << (n.b % 64)
		}
		n.uses = -1
		if n.end-int32(i) > manyNodes {
			n.uses = int32(len(t.uses))
			t.uses = append(t.uses, [4]uint64{})
			ancestors = append(ancestors, int32(i))
		}
	}
}

// tokensBelow returns the tokens that end at a node's descendants.
func (t *trie) tokensBelow(n *trieNode) []int32 {
	end := int32(len(t.tokens))
	if int(n.end) < len(t.nodes) {
		end = t.nodes[n.end].first
	}
	return t.tokens[n.first+n.count : end]
}

// leave removes nodes from path until no node in it is deeper than depth. It sets the field end of each removed node,
// because all descendants of the node have been added.
func (t *trie) leave(path *[]int32, depth int) {
	for len(*path) > depth+1 {
		t.nodes[(*path)[len(*path)-1]].end = int32(len(t.nodes))
		*path = (*path)[:len(*path)-1]
	}
}

// tokensAt returns the tokens that end at a node.
func (t *trie) tokensAt(n *trieNode) []int32 { return t.tokens[n.first : n.first+n.count] }
