package tokenizer

import (
	"context"
	"math"
	"unicode/utf8"
)

type pair struct{ left, right int32 }

type merge struct{ rank, id int32 }

// A cutter cuts words by merging neighbours, the best pair first, and of equal
// ones the leftmost.
type cutter struct {
	t    *Tokenizer
	ctx  context.Context
	most int // tokens
	out  []int32
	err  error // why it has stopped

	window  int    // bytes
	text    string // what is left of a word
	unknown bool   // the last token of the word is the unknown one
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

func (c *candidate) before(d *candidate) bool {
	return c.order < d.order || c.order == d.order && c.left < d.left
}

// candidates are a heap, as of container/heap, which would allocate memory for each.
type candidates []candidate

func (q *candidates) push(c candidate) {
	*q = append(*q, c)
	h := *q
	for i := len(h) - 1; i > 0 && c.before(&h[(i-1)/2]); i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], c
	}
}

func (q *candidates) pop() candidate {
	h := *q
	first, n := h[0], len(h)-1
	h[0] = h[n]
	*q = h[:n]
	for i, child := 0, 1; child < n; i, child = child, 2*child+1 {
		if child+1 < n && h[child+1].before(&h[child]) {
			child++
		}
		if !h[child].before(&h[i]) {
			break
		}
		h[i], h[child] = h[child], h[i]
	}
	return first
}

// window is how many bytes of a long word are merged at a time. Memory is in proportion to it.
const window = 1 << 12

// word appends the tokens of a word.
func (c *cutter) word(text string) {
	if c.t.whole {
		if id, ok := c.t.ids[text]; ok {
			c.out = append(c.out, id)
			return
		}
	}
	c.text, c.unknown = text, false
	for size := c.window; c.text != "" && !c.stopped(); {
		n := c.merge(size)
		if n == 0 { // what follows can change all of it
			size *= 2
			continue
		}
		c.text, size = c.text[n:], c.window
	}
}

// merge appends the tokens of the beginning of the text, and returns the length of this beginning. It looks at size
// bytes, and leaves out the end of them: symbols that may be merged with what follows. Such a merge can come before
// one within the text, which then depends on what follows, too.
func (c *cutter) merge(size int) int {
	c.symbols, c.queue = c.symbols[:0], c.queue[:0]
	c.begin(size)
	last := len(c.symbols) - 1 // symbols after it may be merged with what follows
	for i := range last {
		c.offer(i, i+1)
	}
	outside := c.outside(last)
	for {
		for last >= 0 && outside < math.Inf(1) && (len(c.queue) == 0 || outside < c.queue[0].order) {
			last = c.symbols[last].prev
			outside = c.outside(last)
		}
		if len(c.queue) == 0 || last < 0 {
			break
		}
		best := c.queue.pop()
		l, r := &c.symbols[best.left], &c.symbols[best.right]
		if best.right > last || l.next != best.right || r.end != best.end || l.end != r.start || l.start == l.end {
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
		if best.right == last {
			last = best.left
			outside = c.outside(last)
		}
	}
	if last < 0 {
		return 0
	}
	c.tokens(last)
	return c.symbols[last].end
}

// outside is the order of the first merge of a symbol with what follows it, if that can become any token that the
// text has there. It is +Inf if there is no such merge.
func (c *cutter) outside(i int) float64 {
	first := math.Inf(1)
	if i < 0 {
		return first
	}
	l := &c.symbols[i]
	for end := l.end + 1; end <= min(len(c.text), l.end+c.t.sizes().mergeable); end++ {
		r := symbol{start: l.end, end: end, id: c.t.id(c.text[l.end:end])}
		if order, _, ok := c.merged(l, &r); ok {
			first = min(first, order)
		}
	}
	return first
}

// begin makes a symbol of each character or byte of the first size bytes.
func (c *cutter) begin(size int) {
	for at := 0; at < min(len(c.text), size); {
		end := at + 1
		if c.t.characters {
			_, n := utf8.DecodeRuneInString(c.text[at:])
			end = at + n
		}
		n := len(c.symbols)
		c.symbols = append(c.symbols, symbol{start: at, end: end, id: c.t.id(c.text[at:end]), prev: n - 1, next: n + 1})
		at = end
	}
	if n := len(c.symbols); n > 0 {
		c.symbols[n-1].next = -1
	}
}

// id is the token of a text that is in the vocabulary, or -1.
func (t *Tokenizer) id(text string) int32 {
	if id, ok := t.ids[text]; ok {
		return id
	}
	return -1
}

// merged is the token that two neighbours become, and when.
func (c *cutter) merged(l, r *symbol) (order float64, id int32, ok bool) {
	if c.t.merges == nil {
		id, ok = c.t.ids[c.text[l.start:r.end]]
		if ok {
			order = -float64(c.t.scores[id])
		}
		return order, id, ok
	}
	m, ok := c.t.merges[pair{l.id, r.id}]
	return float64(m.rank), m.id, ok && l.id >= 0 && r.id >= 0
}

func (c *cutter) offer(left, right int) {
	r := &c.symbols[right]
	if order, id, ok := c.merged(&c.symbols[left], r); ok {
		c.queue.push(candidate{order, left, right, id, r.end})
	}
}

// tokens appends the tokens of the symbols to the last one. What is not in the
// vocabulary becomes bytes, or the unknown token, once for neighbours.
func (c *cutter) tokens(last int) {
	for i := 0; i >= 0 && i <= last; i = c.symbols[i].next {
		s := c.symbols[i]
		if s.id >= 0 {
			c.out, c.unknown = append(c.out, s.id), false
			continue
		}
		for _, b := range []byte(c.text[s.start:s.end]) {
			if id := c.t.bytes[b]; id >= 0 {
				c.out, c.unknown = append(c.out, id), false
			} else if c.t.unknown >= 0 && !c.unknown {
				c.out, c.unknown = append(c.out, c.t.unknown), true
			}
		}
	}
}
