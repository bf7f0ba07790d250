package blockhash

import (
	"crypto/sha256"
	"encoding/binary"
)

// LE is SHA-256 over the parent, the number of tokens, the tokens and the extra keys.
// Numbers are little endian (replay/format.md, "Hash functions").
type LE struct{}

// Root returns 32 zero bytes.
func (LE) Root() Hash { return Hash{} }

// stackBytes suffices for a block of 32 tokens, the usual maximum. A larger buffer would
// cost time, because it is cleared for each block. Larger blocks use the heap.
const stackBytes = 32 + 4 + 32*5 + 1

// Sum implements Function.
func (LE) Sum(out, parent *Hash, tokens []int32, extra []Key) {
	var onStack [stackBytes]byte
	b := onStack[:0]
	if need := 32 + 4 + 4*len(tokens) + 1; need > len(onStack) {
		b = make([]byte, 0, need)
	}
	b = append(b, parent[:]...)
	b = appendTokens(b, tokens)
	if extra == nil {
		b = append(b, 0)
	} else {
		b = append(b, 1)
		b = appendKeys(b, extra)
	}
	*out = sha256.Sum256(b)
}

// appendTokens appends the number of tokens and the tokens, 4 bytes each.
func appendTokens(b []byte, tokens []int32) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(tokens)))
	n := len(b)
	b = b[:n+4*len(tokens)]
	for i, t := range tokens {
		binary.LittleEndian.PutUint32(b[n+4*i:], uint32(t))
	}
	return b
}

func appendKeys(b []byte, keys []Key) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, uint32(len(keys)))
	for i := range keys {
		switch k := &keys[i]; k.Kind {
		case Text:
			b = le.AppendUint32(append(b, 'S'), uint32(len(k.Text)))
			b = append(b, k.Text...)
		case Int:
			b = le.AppendUint64(append(b, 'I'), uint64(k.Int))
		case Tuple:
			b = appendKeys(append(b, 'T'), k.Tuple)
		}
	}
	return b
}
