package blockhash

import (
	"crypto/rand"
	"encoding/binary"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// Fast is XXH3-128 with a secret seed. The package comment describes its risk.
type Fast struct{ seed uint64 }

// NewFast returns a Fast with a random seed. Its hashes are valid in this process only.
func NewFast() Fast {
	var b [8]byte
	rand.Read(b[:]) // never fails (crypto/rand, since Go 1.24)
	return Fast{binary.LittleEndian.Uint64(b[:])}
}

// Root returns 32 zero bytes.
func (Fast) Root() Hash { return Hash{} }

// Sum implements Function.
func (f Fast) Sum(out, parent *Hash, tokens []int32, extra []Key) {
	var onStack [stackBytes]byte
	b := append(onStack[:0], parent[:16]...)
	if len(tokens) > 0 {
		b = append(b, unsafe.Slice((*byte)(unsafe.Pointer(&tokens[0])), 4*len(tokens))...)
	}
	if extra != nil {
		b = appendKeys(b, extra)
	}
	sum := xxh3.Hash128Seed(b, f.seed)
	*out = Hash{}
	binary.LittleEndian.PutUint64(out[0:], sum.Lo)
	binary.LittleEndian.PutUint64(out[8:], sum.Hi)
}
