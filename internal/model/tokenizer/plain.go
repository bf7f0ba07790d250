package tokenizer

// Bytes is a tokenizer whose 256 tokens are the bytes. Some of them are special.
func Bytes(special ...byte) *Tokenizer {
	t := blank()
	t.merges = map[pair]merge{}
	for b := range 256 {
		piece := []byte{byte(b)}
		_ = t.enter(b, piece, false) // 255 is not too many
		t.ids[string(piece)], t.bytes[b] = int32(b), int32(b)
	}
	for _, b := range special {
		t.special[b] = true
	}
	return t
}
