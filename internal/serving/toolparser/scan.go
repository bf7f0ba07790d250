package toolparser

import "bytes"

// The methods in this file look at text for the parsers, and count the bytes that they look at. The tests bound this
// number, so parsers look at held text with these methods, or count the bytes themselves.

// completes returns the marker that ends text, or "".
func (o *output) completes(text []byte, markers []string) string {
	for _, m := range markers {
		o.looked += min(len(text), len(m))
		if len(text) >= len(m) && string(text[len(text)-len(m):]) == m {
			return m
		}
	}
	return ""
}

// partialMarker returns the length of the longest suffix of text with which a longer marker begins.
func (o *output) partialMarker(text []byte, markers []string) int {
	longest := 0
	for _, m := range markers {
		for n := min(len(m)-1, len(text)); n > longest; n-- {
			o.looked++
			if text[len(text)-n] == m[0] && string(text[len(text)-n:]) == m[:n] {
				o.looked += n
				longest = n
			}
		}
	}
	return longest
}

// begins reports whether one of the names begins with text.
func (o *output) begins(names []string, text []byte) bool {
	for _, name := range names {
		o.looked += min(len(text), len(name))
		if len(text) <= len(name) && string(text) == name[:len(text)] {
			return true
		}
	}
	return false
}

// agrees reports whether text begins with one of the markers, or one of the markers begins with text.
func (o *output) agrees(markers []string, text []byte) bool {
	for _, m := range markers {
		n := min(len(text), len(m))
		o.looked += n
		if string(text[:n]) == m[:n] {
			return true
		}
	}
	return false
}

const (
	space      = " \t\r\n"
	lineBreaks = "\r\n"
)

func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\n' || b == '\r' }

// spaceBefore returns the length of text without the characters of the set at its end. The set is space or lineBreaks.
func (o *output) spaceBefore(text []byte, set string) int {
	n := len(bytes.TrimRight(text, set))
	o.looked += len(text) - n + 1
	return n
}

// spaceAfter returns the number of characters of the set at the beginning of text.
func (o *output) spaceAfter(text []byte, set string) int {
	n := len(text) - len(bytes.TrimLeft(text, set))
	o.looked += n + 1
	return n
}

// A tail is text that is held back: blank bytes, and then what may be the beginning of a marker. The blank bytes are
// looked at once, and not again whenever a byte is added.
type tail struct {
	set   string // the characters that are blank: space or lineBreaks
	held  []byte
	blank int // bytes at the beginning of held that are known to be blank
}

// release shows the text before the blank bytes at the end, and removes it from the tail. The last keep bytes may be the
// beginning of a marker, so the blank bytes are looked for before them.
func (t *tail) release(o *output, keep int, show func(text []byte)) {
	t.releaseBefore(o, len(t.held)-keep, show)
}

// releaseBefore is like release, but gets where the last bytes begin.
func (t *tail) releaseBefore(o *output, end int, show func(text []byte)) {
	from := min(t.blank, end)
	n := o.spaceBefore(t.held[from:end], t.set)
	if n == 0 {
		t.blank = end
		return
	}
	show(t.held[:from+n])
	t.held, t.blank = append(t.held[:0], t.held[from+n:]...), end-from-n
}

// clear empties the tail.
func (t *tail) clear() { t.held, t.blank = t.held[:0], 0 }
