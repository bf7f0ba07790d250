package tokenizer

import (
	"container/heap"
	"unicode/utf8"
)

type pair struct{ left, right int32 }

type merge struct{ rank, id int32 }

// A cutter cuts words by merging neighbours, the best pair first, and of equal
// ones the leftmost.
type cutter struct {
	t       *Tokenizer
	text    string
	symbols []symbol
	queue   candidates
}

// A symbol is a range of the word. Merging makes the left one longer and
// the right one empty.
type symbol struct {
	start, end int
	id         int32 // -1: not in the vocabulary
	prev, next int
}

// A candidate is a pair that can be merged, if both are still as they were.
type candidate struct {
	order       float64 // smaller is merged first
	left, right int
	id          int32
	end         int // of the right one
}

type candidates []candidate

func (c candidates) Len() int { return len(c) }
func (c candidates) Less(i, j int) bool {
	return c[i].order < c[j].order || c[i].order == c[j].order && c[i].left < c[j].left
}
func (c candidates) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c *candidates) Push(x any)   { *c = append(*c, x.(candidate)) }
func (c *candidates) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}

// word appends the tokens of a word.
func (c *cutter) word(out []int32, text string) []int32 {
	if c.t.whole {
		if id, ok := c.t.ids[text]; ok {
			return append(out, id)
		}
	}
	c.text, c.symbols, c.queue = text, c.symbols[:0], c.queue[:0]
	c.begin()
	for i := range len(c.symbols) - 1 {
		c.offer(i, i+1)
	}
	for len(c.queue) > 0 {
		best := heap.Pop(&c.queue).(candidate)
		l, r := &c.symbols[best.left], &c.symbols[best.right]
		if l.next != best.right || r.end != best.end || l.end != r.start || l.start == l.end {
			continue // one of them was merged since
		}
		l.end, l.id, l.next = r.end, best.id, r.next
		r.start = r.end
		if r.next >= 0 {
			c.symbols[r.next].prev = best.left
			c.offer(best.left, r.next)
		}
		if l.prev >= 0 {
			c.offer(l.prev, best.left)
		}
	}
	return c.tokens(out)
}

// begin makes a symbol of each character or byte.
func (c *cutter) begin() {
	for at := 0; at < len(c.text); {
		size := 1
		if c.t.characters {
			_, size = utf8.DecodeRuneInString(c.text[at:])
		}
		n := len(c.symbols)
		s := symbol{start: at, end: at + size, id: -1, prev: n - 1, next: n + 1}
		if id, ok := c.t.ids[c.text[at:at+size]]; ok {
			s.id = id
		}
		c.symbols = append(c.symbols, s)
		at += size
	}
	if n := len(c.symbols); n > 0 {
		c.symbols[n-1].next = -1
	}
}

func (c *cutter) offer(left, right int) {
	l, r := &c.symbols[left], &c.symbols[right]
	if c.t.merges == nil {
		if id, ok := c.t.ids[c.text[l.start:r.end]]; ok {
			heap.Push(&c.queue, candidate{-float64(c.t.scores[id]), left, right, id, r.end})
		}
		return
	}
	if m, ok := c.t.merges[pair{l.id, r.id}]; ok && l.id >= 0 && r.id >= 0 {
		heap.Push(&c.queue, candidate{float64(m.rank), left, right, m.id, r.end})
	}
}

// tokens appends the tokens of the symbols that are left. What is not in the
// vocabulary becomes bytes, or the unknown token, once for neighbours.
func (c *cutter) tokens(out []int32) []int32 {
	unknown := false
	for i := 0; i >= 0 && len(c.symbols) > 0; i = c.symbols[i].next {
		s := c.symbols[i]
		if s.id >= 0 {
			out, unknown = append(out, s.id), false
			continue
		}
		for _, b := range []byte(c.text[s.start:s.end]) {
			if id := c.t.bytes[b]; id >= 0 {
				out, unknown = append(out, id), false
			} else if c.t.unknown >= 0 && !unknown {
				out, unknown = append(out, c.t.unknown), true
			}
		}
	}
	return out
}
