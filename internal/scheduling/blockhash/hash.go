package blockhash

import (
	"encoding/binary"
	"encoding/hex"
)

// Hash names a block and all blocks before it. Functions with fewer than 32
// bytes leave the rest 0.
type Hash [32]byte

// Equal compares eight bytes at a time, which the compiler does inline.
func (h *Hash) Equal(o *Hash) bool {
	le := binary.LittleEndian
	return le.Uint64(h[0:]) == le.Uint64(o[0:]) && le.Uint64(h[8:]) == le.Uint64(o[8:]) &&
		le.Uint64(h[16:]) == le.Uint64(o[16:]) && le.Uint64(h[24:]) == le.Uint64(o[24:])
}

// Short is the first 8 bytes in hex, by which traces show a hash.
func (h *Hash) Short() string { return hex.EncodeToString(h[:8]) }

// Low64 is the number that vLLM publishes instead of the hash when
// VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES is set: the last 8 bytes, big endian.
func (h *Hash) Low64() uint64 { return binary.BigEndian.Uint64(h[24:]) }

// A Function hashes one block. Implementations are safe for many goroutines.
type Function interface {
	// Root is the parent of every first block (vLLM's NONE_HASH).
	Root() Hash
	// Sum writes the hash of the block with these tokens after parent to
	// out, which may be parent. No extra keys is different from empty ones:
	// there are no empty ones (vllm/v1/RULES.md §3).
	Sum(out, parent *Hash, tokens []int32, extra []Key)
}

// ByName returns the function that traces call name: "le" or "cbor".
func ByName(name string) (Function, bool) {
	switch name {
	case "le":
		return LE{}, true
	case "cbor":
		return CBOR("0"), true
	}
	return nil, false
}
