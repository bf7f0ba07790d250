package tokenizer

// Bytes returns a tokenizer whose 256 tokens are the bytes. The first of the special tokens begins a text.
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
