package tokenizer

// byteOf maps GPT-2's characters to bytes. GPT-2 writes each byte as a printable character: printable characters of
// Latin-1 as themselves, and the other bytes, in order, from U+0100 on.
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

// unmap returns the bytes that GPT-2's characters stand for. ok is false if a character stands for no byte.
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
