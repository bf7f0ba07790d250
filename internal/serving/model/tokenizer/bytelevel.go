package tokenizer

// byteOf maps GPT-2's characters to bytes. GPT-2 writes each byte as a printable character. The bytes of printable
// characters of Latin-1 become these characters. The other bytes, in order, become the characters from U+0100 on.
var byteOf = func() map[rune]byte {
	m, next := map[rune]byte{}, rune(256)
	for b := range 256 {
		r := rune(b)
		if !(b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae) {
			r = next
			next++
		}
		m[r] = byte(b)
	}
	return m
}()

// unmap returns the bytes that a text of GPT-2's characters encodes (see byteOf). ok is false if piece has another
// character.
func unmap(piece string) (b []byte, ok bool) {
	for _, r := range piece {
		v, known := byteOf[r]
		if !known {
			return nil, false
		}
		b = append(b, v)
	}
	return b, true
}

// Bytes returns a tokenizer with 256 tokens, one for each byte. The bytes in special are special tokens. The first
// of them is the token that Encode adds at the beginning of a text; there must be at least one.
func Bytes(special ...byte) *Tokenizer {
	t := blank()
	t.merges = map[pair]merge{}
	for b := range 256 {
		piece := []byte{byte(b)}
		t.enter(b, piece, false)
		t.ids[string(piece)], t.bytes[b] = int32(b), int32(b)
	}
	for _, b := range special {
		t.special[b] = true
	}
	t.first = []int32{int32(special[0])}
	return t
}
