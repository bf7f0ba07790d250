package tokenizer

// GPT-2 writes each byte as a character that can be seen: those of Latin-1 that
// can, as themselves, and the others, in order, from U+0100 on.
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

// unmap returns the bytes that GPT-2's characters stand for; ok is false if one
// stands for none.
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
