package lexeme

import "llmmemory/internal/serving/structured/automaton"

// State.code describes a character of which only some bytes or digits have been read. The highest four bits of a code
// are the kind of code, which is one of the constants below. The other bits are values. The comment after a kind lists
// its values, with the number of the lowest bit of each. For example, "24: missing bytes" means that the number of
// missing bytes begins at bit 24. Characters of the same class share a code if possible, so that a lexeme has few
// states.
const (
	utf8Code    = 1 << 28 // 24: number of bytes of the character, 22: missing bytes, 0: the bits so far
	utf8Class   = 2 << 28 // 24: missing bytes, 0: the class
	escape      = 3 << 28 // after a backslash
	hexCode     = 4 << 28 // 24: number of digits so far, 0: their value
	hexClass    = 5 << 28 // 24: missing digits, 0: the class
	pairCode    = 6 << 28 // 24: characters read of the second escape, 12: low 10 bits of the first, 0: value of the second's digits
	kindOfCode  = 15 << 28
	valueOfCode = 1<<22 - 1
)

// lead reads the first byte of a character.
func (t *text) lead(s State, b byte) (State, bool) {
	switch {
	case b < 0x80:
		return t.afterRune(s, rune(b))
	case b < 0xC2 || b > 0xF4:
		return s, false
	case b < 0xE0:
		return t.bytes(s, 2, 1, rune(b&0x1F))
	case b < 0xF0:
		return t.bytes(s, 3, 2, rune(b&0x0F))
	}
	return t.bytes(s, 4, 3, rune(b&0x07))
}

// bytes sets the code after some bytes of a character.
func (t *text) bytes(s State, total, missing uint32, bits rune) (State, bool) {
	lo, hi := bits<<(6*missing), (bits+1)<<(6*missing)-1
	smallest := [5]rune{0, 0, 0x80, 0x800, 0x10000}[total]
	whole := lo >= smallest && hi <= automaton.MaxRune && (hi < 0xD800 || lo > 0xDFFF)
	lo, hi = max(lo, smallest), min(hi, automaton.MaxRune)
	if lo > hi || !t.allowsAny(s.pos, lo, hi) {
		return s, false
	}
	if class, uniform := t.uniform(lo, hi); uniform && whole {
		s.code = utf8Class | missing<<24 | uint32(class)
		return s, true
	}
	s.code = utf8Code | total<<24 | missing<<22 | uint32(bits)
	return s, true
}

// partial reads the next byte of a character, or of an escape, of which some bytes have been read.
func (t *text) partial(s State, b byte) (State, bool) {
	switch s.code & kindOfCode {
	case utf8Code:
		if b&0xC0 != 0x80 {
			return s, false
		}
		total, missing := s.code>>24&15, s.code>>22&3-1
		bits := rune(s.code&valueOfCode)<<6 | rune(b&0x3F)
		if missing == 0 {
			return t.afterRune(s, bits)
		}
		return t.bytes(s, total, missing, bits)
	case utf8Class:
		if b&0xC0 != 0x80 {
			return s, false
		}
		if missing := s.code >> 24 & 15; missing > 1 {
			s.code -= 1 << 24
			return s, true
		}
		return t.afterClass(s, int32(s.code&valueOfCode))
	case escape:
		return t.escaped(s, b)
	case hexCode, hexClass:
		return t.digit(s, b)
	}
	return t.pair(s, b)
}

var short = [256]rune{'"': '"', '\\': '\\', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// needsHex reports whether a character can only be written with a \u escape.
func needsHex(r rune) bool { return r < 0x20 && !(r >= '\b' && r <= '\r' && r != '\v') }

// canEscape reports whether some character that may come next can be written with an escape.
func (t *text) canEscape(state int32) bool {
	if t.form == Free {
		return t.allowsAny(state, 0, automaton.MaxRune)
	}
	for r := range rune(0x20) {
		if t.allowsAny(state, r, r) {
			return true
		}
	}
	return t.allowsAny(state, '"', '"') || t.allowsAny(state, '\\', '\\')
}

// escaped reads what follows a backslash.
func (t *text) escaped(s State, b byte) (State, bool) {
	switch {
	case b == 'u':
		return t.digits(s, 0, 0)
	case b == '/' && t.form == Free:
		return t.afterRune(s, '/')
	case short[b] == 0:
		return s, false
	}
	return t.afterRune(s, short[b])
}

// digits sets the code after some digits of \u.
func (t *text) digits(s State, count, value uint32) (State, bool) {
	missing := 4 - count
	lo, hi := rune(value)<<(4*missing), rune(value+1)<<(4*missing)-1
	s.code = hexCode | count<<24 | value
	if t.form == Quoted {
		for r := lo; r <= hi && r < 0x20; r++ {
			if needsHex(r) && t.allowsAny(s.pos, r, r) {
				return s, true
			}
		}
		return s, false
	}
	if hi < 0xD800 || lo > 0xDFFF {
		class, uniform := t.uniform(lo, hi)
		if uniform {
			s.code = hexClass | missing<<24 | uint32(class)
		}
		return s, t.allowsAny(s.pos, lo, hi)
	}
	pairs := max(lo, 0xD800) <= min(hi, 0xDBFF) && t.allowsAny(s.pos, firstOf(max(lo, 0xD800)), firstOf(min(hi, 0xDBFF))+0x3FF)
	return s, pairs || t.allowsAny(s.pos, lo, hi)
}

// firstOf returns the first of the characters whose surrogate pair begins with high.
func firstOf(high rune) rune { return 0x10000 + (high-0xD800)<<10 }

func hexValue(b byte) (uint32, bool) {
	switch {
	case b >= '0' && b <= '9':
		return uint32(b - '0'), true
	case b|0x20 >= 'a' && b|0x20 <= 'f':
		return uint32(b|0x20-'a') + 10, true
	}
	return 0, false
}

// digit reads a digit of \u.
func (t *text) digit(s State, b byte) (State, bool) {
	v, ok := hexValue(b)
	if !ok || t.form == Quoted && b >= 'A' && b <= 'F' {
		return s, false
	}
	if s.code&kindOfCode == hexClass {
		if missing := s.code >> 24 & 15; missing > 1 {
			s.code -= 1 << 24
			return s, true
		}
		return t.afterClass(s, int32(s.code&valueOfCode))
	}
	count, value := s.code>>24&15+1, s.code&valueOfCode<<4|v
	if count < 4 {
		return t.digits(s, count, value)
	}
	r := rune(value)
	switch {
	case t.form == Quoted && !needsHex(r):
		return s, false
	case r >= 0xD800 && r <= 0xDBFF:
		s.code = pairCode | (value-0xD800)<<12
		return s, t.allowsAny(s.pos, firstOf(r), firstOf(r)+0x3FF)
	case r >= 0xDC00 && r <= 0xDFFF:
		return s, false
	}
	return t.afterRune(s, r)
}

// pair reads the second \u of a pair of surrogates.
func (t *text) pair(s State, b byte) (State, bool) {
	read, high, low := s.code>>24&15, s.code>>12&0x3FF, s.code&0xFFF
	if read < 2 {
		s.code += 1 << 24
		return s, b == `\u`[read]
	}
	v, ok := hexValue(b)
	if !ok {
		return s, false
	}
	low = low<<4 | v
	missing := 5 - read
	lo, hi := max(low<<(4*missing), 0xDC00), min((low+1)<<(4*missing)-1, 0xDFFF)
	if lo > hi {
		return s, false
	}
	first := rune(0x10000 + high<<10)
	if missing == 0 {
		return t.afterRune(s, first+rune(low-0xDC00))
	}
	s.code = pairCode | (read+1)<<24 | high<<12 | low
	return s, t.allowsAny(s.pos, first+rune(lo-0xDC00), first+rune(hi-0xDC00))
}
