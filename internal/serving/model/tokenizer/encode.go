package tokenizer

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/dlclark/regexp2"
	"golang.org/x/text/unicode/norm"
)

// ErrTooMany is the error of a text that has more tokens than EncodeUpTo may return.
var ErrTooMany = errors.New("the text has too many tokens")

// Encode cuts a text into tokens. Names of added tokens in the text become
// these tokens. With around, the tokens that begin and end a text are put
// around it, but not a second time if the text itself begins or ends with them.
func (t *Tokenizer) Encode(text string, around bool) []int32 {
	out, _ := t.EncodeUpTo(context.Background(), text, around, math.MaxInt)
	return out
}

// EncodeUpTo is Encode for a text of at most the given number of tokens. It stops as soon as the text has more, at
// once if its length says so, and when ctx ends. The error is ErrTooMany or that of ctx.
func (t *Tokenizer) EncodeUpTo(ctx context.Context, text string, around bool, most int) ([]int32, error) {
	return t.encode(ctx, strings.ToValidUTF8(text, "\uFFFD"), nil, around, most)
}

// encode cuts a text. Bytes at the given places belong to no token that is protected.
func (t *Tokenizer) encode(ctx context.Context, text string, places []int, around bool, most int) ([]int32, error) {
	if !t.Room(most)(text) {
		return nil, ErrTooMany
	}
	c := cutter{t: t, ctx: ctx, most: most, window: window}
	if around {
		c.out = append(c.out, t.first...)
	}
	whole := len(text)
	allowed := func(from, to int, id int32) bool { // of the text that is left
		gone := whole - len(text)
		i, _ := slices.BinarySearch(places, gone+from)
		return i == len(places) || places[i] >= gone+to || !t.protected(id)
	}
	for begin := true; text != ""; begin = false {
		before, id, after := t.added.next(text, allowed)
		if before != "" {
			c.part(before, begin)
		}
		twice := around && (begin && before == "" && is(t.first, id) || after == "" && is(t.last, id))
		if id >= 0 && !twice {
			c.out = append(c.out, id)
		}
		if c.stopped() {
			return nil, c.err
		}
		text = after
	}
	if around {
		c.out = append(c.out, t.last...)
	}
	if c.stopped() {
		return nil, c.err
	}
	return c.out, nil
}

// is reports whether a token is all that stands before or after a text.
func is(around []int32, id int32) bool { return len(around) == 1 && around[0] == id }

// part cuts what stands between added tokens.
func (c *cutter) part(text string, begin bool) {
	t := c.t
	if t.composed {
		text = norm.NFC.String(text)
	}
	if t.characters {
		text = strings.ReplaceAll(text, "▁", " ")
	}
	if (t.prefix == prefixAlways || t.prefix == prefixFirst && begin) && (t.characters || !strings.HasPrefix(text, " ")) {
		text = " " + text
	}
	if len(t.patterns) == 0 {
		c.word(text)
		return
	}
	isolate([]rune(text), t.patterns, func(word string) bool {
		c.word(word)
		return !c.stopped()
	})
}

// isolate makes each match of the first pattern and each gap between matches a word, which the next pattern cuts. It
// ends when a call of word returns false, and returns false then.
func isolate(text []rune, patterns []*regexp2.Regexp, word func(string) bool) bool {
	if len(patterns) == 0 {
		return word(string(text))
	}
	p, at := patterns[0], 0
	for m, err := p.FindRunesMatch(text); m != nil && err == nil; m, err = p.FindNextMatch(m) {
		if m.Length == 0 {
			continue
		}
		if m.Index > at && !isolate(text[at:m.Index], patterns[1:], word) {
			return false
		}
		at = m.Index + m.Length
		if !isolate(text[m.Index:at], patterns[1:], word) {
			return false
		}
	}
	return at == len(text) || isolate(text[at:], patterns[1:], word)
}

// stopped reports whether there is nothing more to do: c.err says why.
func (c *cutter) stopped() bool {
	switch {
	case c.err != nil:
	case len(c.out) > c.most:
		c.err = ErrTooMany
	default:
		c.err = c.ctx.Err()
	}
	return c.err != nil
}
