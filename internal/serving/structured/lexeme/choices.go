package lexeme

import "unicode/utf8"

// Choices returns the lexeme of some texts, written as UTF-8. It has at most one state for each byte of the texts,
// besides the start, however many different characters they have. ChoiceBytes says what it keeps.
func Choices(texts []string) *Lexeme {
	c := &choices{nodes: make([]choice, 1)}
	for _, text := range texts {
		c.add(text)
	}
	return newLexeme("", c)
}

// ChoiceBytes is about what Choices keeps for a byte of a text.
const ChoiceBytes = 32

// choices is the machine of Choices: a trie of bytes. State.pos is a node of it.
type choices struct{ nodes []choice }

type choice struct {
	b              byte
	ends           bool // a text ends here
	child, sibling int32
}

func (c *choices) add(text string) {
	at := int32(0)
	var buffer [utf8.UTFMax]byte
	for _, r := range text {
		for _, b := range utf8.AppendRune(buffer[:0], r) {
			child := c.child(at, b)
			if child == 0 {
				child = int32(len(c.nodes))
				c.nodes = append(c.nodes, choice{b: b, sibling: c.nodes[at].child})
				c.nodes[at].child = child
			}
			at = child
		}
	}
	c.nodes[at].ends = true
}

// child returns the node after a byte, or 0 if there is none.
func (c *choices) child(parent int32, b byte) int32 {
	for child := c.nodes[parent].child; child != 0; child = c.nodes[child].sibling {
		if c.nodes[child].b == b {
			return child
		}
	}
	return 0
}

func (c *choices) step(s State, b byte) (State, bool) {
	s.pos = c.child(s.pos, b)
	return s, s.pos != 0
}

func (c *choices) tag(s State) int32 {
	if c.nodes[s.pos].ends {
		return 0
	}
	return None
}
