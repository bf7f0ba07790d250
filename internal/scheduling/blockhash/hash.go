// Package blockhash hashes blocks of tokens. The hash of a block covers the hash of the previous block, the token ids,
// and the extra keys. Extra keys give equal tokens a different meaning (LoRA adapter, multimodal items, cache salt;
// vllm/v1/RULES.md §3). So the hash identifies the block and all blocks before it.
//
// There are three functions. LE is used in the recorded traces; CBOR is vLLM's sha256_cbor. Both are SHA-256, for which
// no collision is known, so a prefix hit is as reliable as a comparison of the tokens. Fast is XXH3-128 with a secret
// seed of this process. Among billions of blocks, two different prompts have equal hashes with a probability of about
// 2^-64. But an attacker can choose prompts and recognize hits by their timing, and XXH3 gives no guarantee against
// this. A collision would give one user the keys and values of another user's prompt. Use Fast only if all users of a
// cache may see each other's data, or give each tenant its own salt.
package blockhash

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// Hash identifies a block and all blocks before it. Fast sets only the first 8 and the last 8 bytes; the others are 0.
type Hash [32]byte

// Equal reports whether two hashes are equal. It compares eight bytes at a time. This is faster than ==, which calls a
// function of the runtime to compare arrays.
func (h *Hash) Equal(o *Hash) bool {
	le := binary.LittleEndian
	return le.Uint64(h[0:]) == le.Uint64(o[0:]) && le.Uint64(h[8:]) == le.Uint64(o[8:]) &&
		le.Uint64(h[16:]) == le.Uint64(o[16:]) && le.Uint64(h[24:]) == le.Uint64(o[24:])
}

// Short returns the first 8 bytes of the hash in hex, the form in which recordings write hashes.
func (h *Hash) Short() string { return hex.EncodeToString(h[:8]) }

// Low64 returns the last 8 bytes as a big-endian number. If VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES is set, vLLM
// publishes this number instead of the hash.
func (h *Hash) Low64() uint64 { return binary.BigEndian.Uint64(h[24:]) }

// A Function hashes one block. Implementations are safe for concurrent use.
type Function interface {
	// Root returns the parent of every first block (vLLM's NONE_HASH).
	Root() Hash
	// Sum writes the hash of a block to out. tokens are the block's tokens, and parent is the hash of the block
	// before it. out may be parent. extra is nil or not empty (vllm/v1/RULES.md §3).
	Sum(out, parent *Hash, tokens []int32, extra []Key)
}

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
	b := append(append(onStack[:0], parent[:8]...), parent[24:]...)
	if len(tokens) > 0 {
		b = append(b, unsafe.Slice((*byte)(unsafe.Pointer(&tokens[0])), 4*len(tokens))...)
	}
	if extra != nil {
		b = appendKeys(b, extra)
	}
	sum := xxh3.Hash128Seed(b, f.seed)
	*out = Hash{}
	binary.LittleEndian.PutUint64(out[0:], sum.Lo)
	binary.LittleEndian.PutUint64(out[24:], sum.Hi) // for Low64
}

// LE is SHA-256 over the parent's hash, the number of tokens, the tokens and the extra keys. Numbers are little endian.
// The recordings of vLLM use LE.
type LE struct{}

// Root returns 32 zero bytes.
func (LE) Root() Hash { return Hash{} }

// stackBytes is the size of Sum's buffer on the stack. It is enough for a block of 32 tokens without extra keys. Larger
// blocks use the heap. The buffer is cleared for each block, so a larger one would cost time. CBOR takes the most bytes:
// 1 for the array, 34 for the parent, 2 and at most 5 for each token, and 1 for null.
const stackBytes = 1 + 34 + 2 + 32*5 + 1

// Sum implements Function.
func (LE) Sum(out, parent *Hash, tokens []int32, extra []Key) {
	var onStack [stackBytes]byte
	b := onStack[:0]
	if need := 32 + 4 + 4*len(tokens) + 1; need > len(onStack) {
		b = make([]byte, 0, need)
	}
	b = binary.LittleEndian.AppendUint32(append(b, parent[:]...), uint32(len(tokens)))
	n := len(b)
	b = b[:n+4*len(tokens)]
	for i, t := range tokens {
		binary.LittleEndian.PutUint32(b[n+4*i:], uint32(t))
	}
	if extra == nil {
		b = append(b, 0)
	} else {
		b = append(b, 1)
		b = appendKeys(b, extra)
	}
	*out = sha256.Sum256(b)
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
