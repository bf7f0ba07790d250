package blockhash

import (
	"crypto/sha256"
	"encoding/binary"
)

// CBOR is vLLM's sha256_cbor: SHA-256 over the canonical CBOR of the array [parent, tokens, extra keys or null]. The
// string is the seed of the hashes, which vLLM reads from the environment variable PYTHONHASHSEED. Without that
// variable each vLLM process draws 32 random bytes.
type CBOR string

// Root returns the hash of the seed as a CBOR text string.
func (c CBOR) Root() Hash {
	return sha256.Sum256(appendText(nil, string(c)))
}

// Sum implements Function.
func (CBOR) Sum(out, parent *Hash, tokens []int32, extra []Key) {
	var onStack [stackBytes]byte
	b := appendHead(onStack[:0], majorArray, 3)
	b = append(appendHead(b, majorBytes, uint64(len(parent))), parent[:]...)
	b = appendHead(b, majorArray, uint64(len(tokens)))
	for _, t := range tokens {
		b = appendInt(b, int64(t))
	}
	if extra == nil {
		b = append(b, cborNull)
	} else {
		b = appendArray(b, extra)
	}
	*out = sha256.Sum256(b)
}

// Major types and the simple value null (RFC 8949, §3).
const (
	majorUint   = 0 << 5
	majorNegint = 1 << 5
	majorBytes  = 2 << 5
	majorText   = 3 << 5
	majorArray  = 4 << 5
	cborNull    = 0xf6
)

// appendHead appends the first bytes of a CBOR item, its major type and the number n, in the shortest form.
func appendHead(b []byte, major byte, n uint64) []byte {
	be := binary.BigEndian
	switch {
	case n < 24:
		return append(b, major|byte(n))
	case n < 1<<8:
		return append(b, major|24, byte(n))
	case n < 1<<16:
		return be.AppendUint16(append(b, major|25), uint16(n))
	case n < 1<<32:
		return be.AppendUint32(append(b, major|26), uint32(n))
	}
	return be.AppendUint64(append(b, major|27), n)
}

func appendInt(b []byte, v int64) []byte {
	if v < 0 {
		return appendHead(b, majorNegint, uint64(-1-v))
	}
	return appendHead(b, majorUint, uint64(v))
}

func appendText(b []byte, s string) []byte {
	return append(appendHead(b, majorText, uint64(len(s))), s...)
}

func appendArray(b []byte, keys []Key) []byte {
	b = appendHead(b, majorArray, uint64(len(keys)))
	for i := range keys {
		switch k := &keys[i]; k.Kind {
		case Text:
			b = appendText(b, k.Text)
		case Int:
			b = appendInt(b, k.Int)
		case Tuple:
			b = appendArray(b, k.Tuple)
		}
	}
	return b
}
