package blockhash

import (
	"encoding/binary"
	"encoding/hex"
)

// Hash identifies a block and all blocks before it. If a Function has fewer than 32
// bytes, the rest is 0.
type Hash [32]byte

// Equal compares eight bytes at a time, without a call of the runtime.
func (h *Hash) Equal(o *Hash) bool {
	le := binary.LittleEndian
	return le.Uint64(h[0:]) == le.Uint64(o[0:]) && le.Uint64(h[8:]) == le.Uint64(o[8:]) &&
		le.Uint64(h[16:]) == le.Uint64(o[16:]) && le.Uint64(h[24:]) == le.Uint64(o[24:])
}

// Short returns the first 8 bytes in hex, as recordings show a hash.
func (h *Hash) Short() string { return hex.EncodeToString(h[:8]) }

// Low64 returns the last 8 bytes as a big-endian number. vLLM publishes it in place of the
// hash if VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES is set.
func (h *Hash) Low64() uint64 { return binary.BigEndian.Uint64(h[24:]) }

// A Function hashes one block. Implementations are safe for concurrent use.
type Function interface {
	// Root returns the parent of every first block (vLLM's NONE_HASH).
	Root() Hash
	// Sum writes the hash of the block with these tokens after parent to out,
	// which may be parent. extra is nil or not empty (vllm/v1/RULES.md §3).
	Sum(out, parent *Hash, tokens []int32, extra []Key)
}

// ByName returns the function with the name that recordings use: "le" or "cbor".
func ByName(name string) (Function, bool) {
	switch name {
	case "le":
		return LE{}, true
	case "cbor":
		return CBOR("0"), true
	}
	return nil, false
}
