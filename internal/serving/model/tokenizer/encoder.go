package tokenizer

import (
	"context"
	"math"
	"unicode/utf8"
)

type pair struct{ left, right int32 }

type merge struct{ rank, id int32 }

// An encoder converts a text to tokens. It merges adjacent symbols of a word: first the pair with the smallest
// order; of pairs with the same order, the leftmost.
type encoder struct {
	t     *Tokenizer
	ctx   context.Context
	limit int // of tokens
	out   []int32
	err   error // why it has stopped

	joined bool // the next part continues the text before it, so no space is put before it

	window  int    // see the constant window
	text    string // the rest of a word
	unknown bool   // the last token of the word is the unknown token
	symbols []symbol
	queue   candidates
	split   int // bytes that were split into symbols so far, counted as often as they were split
}

// A symbol is a range of bytes of the word. Merging two symbols extends the left one and empties the right one.
type symbol struct {
	start, end int
	id         int32 // -1 if it is not in the vocabulary
	prev, next int
}

// A candidate is a possible merge of two symbols. It is outdated if one of them has changed since.
type candidate struct {
	order       float64 // smaller is merged first
	left, right int
	id          int32
	end         int // of the right symbol
}

func (c *candidate) before(d *candidate) bool {
	return c.order < d.order || c.order == d.order && c.left < d.left
}

// candidates is a heap. container/heap would allocate memory for each element.
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

// window is the number of bytes of a long word that are merged at a time. The limit keeps memory from growing with the
// word. The number is doubled if the text after these bytes could change all of their tokens.
const window = 1 << 12

func (e *encoder) word(text string) {
	if e.t.ignoreMerges {
		if id, ok := e.t.ids[text]; ok {
			e.out = append(e.out, id)
			return
		}
	}
	e.text, e.unknown = text, false
	for size := e.window; e.text != "" && !e.stopped(); {
		n := e.merge(size)
		if n == 0 { // the text that follows can change all of it
			size *= 2
			continue
		}
		e.text, size = e.text[n:], e.window
	}
}

// merge splits the first size bytes of the text into symbols, merges pairs of them, and appends the tokens of the
// symbols that remain. At each step, it merges the pair with the smallest order. It returns the number of bytes that the
// appended tokens stand for, which can be less than size.
//
// The last symbol could also be merged with text after these bytes. If the order of such a pair is the smallest of all,
// the tokens of the last symbol depend on that text. The last symbol is then left out, and the same rule is applied to
// the symbol before it. The next call begins with the symbols that are left out. If all are left out, merge returns 0.
func (e *encoder) merge(size int) int {
	e.symbols, e.queue = e.symbols[:0], e.queue[:0]
	e.begin(size)
	last := len(e.symbols) - 1 // the symbols after this one may be merged with the following text
	for i := range last {
		e.offer(i, i+1)
	}
	following := e.firstOrderAfter(last)
	for {
		for last >= 0 && following < math.Inf(1) && (len(e.queue) == 0 || following < e.queue[0].order) {
			last = e.symbols[last].prev
			following = e.firstOrderAfter(last)
		}
		if len(e.queue) == 0 || last < 0 {
			break
		}
		best := e.queue.pop()
		l, r := &e.symbols[best.left], &e.symbols[best.right]
		if best.right > last || l.next != best.right || r.end != best.end || l.end != r.start || l.start == l.end {
			continue // one of them has been merged
		}
		l.end, l.id, l.next = r.end, best.id, r.next
		r.start = r.end
		if r.next >= 0 {
			e.symbols[r.next].prev = best.left
			e.offer(best.left, r.next)
		}
		if l.prev >= 0 {
			e.offer(l.prev, best.left)
		}
		if best.right == last {
			last = best.left
			following = e.firstOrderAfter(last)
		}
	}
	if last < 0 {
		return 0
	}
	e.tokens(last)
	return e.symbols[last].end
}

// firstOrderAfter returns the smallest order (see candidate) of all possible merges of symbol i with text directly
// after the symbol. It returns +Inf if there is no such merge.
func (e *encoder) firstOrderAfter(i int) float64 {
	first := math.Inf(1)
	if i < 0 {
		return first
	}
	l := &e.symbols[i]
	for end := l.end + 1; end <= min(len(e.text), l.end+e.t.sizes().mergeable); end++ {
		r := symbol{start: l.end, end: end, id: e.t.id(e.text[l.end:end])}
		if order, _, ok := e.merged(l, &r); ok {
			first = min(first, order)
		}
	}
	return first
}

// begin splits the first size bytes of the text into symbols. A symbol is a character if the tokenizer's field
// characters is true, and a byte otherwise.
func (e *encoder) begin(size int) {
	for start := 0; start < min(len(e.text), size); {
		end := start + 1
		if e.t.characters {
			_, n := utf8.DecodeRuneInString(e.text[start:])
			end = start + n
		}
		n := len(e.symbols)
		e.split += end - start
		e.symbols = append(e.symbols, symbol{start: start, end: end, id: e.t.id(e.text[start:end]), prev: n - 1, next: n + 1})
		start = end
	}
	if n := len(e.symbols); n > 0 {
		e.symbols[n-1].next = -1
	}
}

func (t *Tokenizer) id(text string) int32 {
	if id, ok := t.ids[text]; ok {
		return id
	}
	return -1
}

// merged returns the token that merging two adjacent symbols makes, and the order of the merge. ok is false if they
// cannot be merged.
func (e *encoder) merged(l, r *symbol) (order float64, id int32, ok bool) {
	if e.t.merges == nil {
		id, ok = e.t.ids[e.text[l.start:r.end]]
		if ok {
			order = -float64(e.t.scores[id])
		}
		return order, id, ok
	}
	m, ok := e.t.merges[pair{l.id, r.id}]
	return float64(m.rank), m.id, ok && l.id >= 0 && r.id >= 0
}

func (e *encoder) offer(left, right int) {
	r := &e.symbols[right]
	if order, id, ok := e.merged(&e.symbols[left], r); ok {
		e.queue.push(candidate{order, left, right, id, r.end})
	}
}

// tokens appends the tokens of the symbols up to last. A symbol that is not in the vocabulary becomes the tokens of its
// bytes. A byte without a token becomes the unknown token, or nothing if there is no unknown token. If several
// consecutive bytes have no token, they become a single unknown token.
func (e *encoder) tokens(last int) {
	for i := 0; i >= 0 && i <= last; i = e.symbols[i].next {
		s := e.symbols[i]
		if s.id >= 0 {
			e.out, e.unknown = append(e.out, s.id), false
			continue
		}
		for _, b := range []byte(e.text[s.start:s.end]) {
			if id := e.t.bytes[b]; id >= 0 {
				e.out, e.unknown = append(e.out, id), false
			} else if e.t.unknown >= 0 && !e.unknown {
				e.out, e.unknown = append(e.out, e.t.unknown), true
			}
		}
	}
}
