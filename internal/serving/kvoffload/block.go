package kvoffload

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"unsafe"

	"github.com/zeebo/xxh3"

	"llmmemory/internal/scheduling/blockhash"
)

// A Tier stores blocks of one Space. Its methods are safe for concurrent use, and return soon after the
// context is done.
type Tier interface {
	// Count returns how many of the blocks the tier has, from the first one on.
	Count(ctx context.Context, blocks []blockhash.Hash) (int, error)

	// Load reads blocks into memory of their size and returns how many came whole, from the first one
	// on. A block that is damaged is removed. After an error, or when the context is done, a
	// read may still write to the memory, so it must not be used for anything else.
	Load(ctx context.Context, blocks []blockhash.Hash, to [][]byte) (int, error)

	// Store keeps the block in m, unless the tier has it. When the context is done, it may still use the memory.
	Store(ctx context.Context, block blockhash.Hash, m Memory) error

	Close() error
}

// ErrDamaged is wrapped when a block is not what was stored.
var ErrDamaged = errors.New("the block is damaged")

// A Space stands for everything that the bytes of a block depend on beside its tokens: the weights, the
// shape and type of keys and values, and the arithmetic that computes them. Blocks of different
// spaces never meet.
type Space [16]byte

// NewSpace is the space of a description, whose parts are in a fixed order.
func NewSpace(description ...string) Space {
	h := xxh3.New()
	for _, part := range description {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(part))))
		_, _ = h.WriteString(part)
	}
	return h.Sum128().Bytes()
}

func (s Space) String() string { return hex.EncodeToString(s[:]) }

// The format of a stored block: magic, space, hash of the block, XXH3 of all that and of the data, and the data.
const (
	magic      = "llmkv 1\n"
	sumOffset  = len(magic) + len(Space{}) + len(blockhash.Hash{})
	headerSize = sumOffset + 8
)

// A Memory has a block that is to be stored, and room for the header before it, so that a tier copies nothing.
type Memory struct {
	whole []byte // whole pages
	size  int    // of the block
}

// alignment is that of memory, offsets and lengths of writes past the page cache. No disk's sectors are larger.
const alignment = 4096

// NewMemory returns memory for a block of size bytes.
func NewMemory(size int) Memory {
	n := (headerSize + size + alignment - 1) &^ (alignment - 1)
	b := make([]byte, n+alignment)
	from := -int(uintptr(unsafe.Pointer(&b[0]))) & (alignment - 1)
	return Memory{b[from : from+n], size}
}

// Block returns the memory of the block.
func (m Memory) Block() []byte { return m.whole[headerSize : headerSize+m.size] }

// stored returns the header and the block.
func (m Memory) stored(s *Space, block *blockhash.Hash) []byte {
	header := s.encode(block, m.Block())
	copy(m.whole, header[:])
	return m.whole[:headerSize+m.size]
}

// encode writes the header of a block.
func (s *Space) encode(block *blockhash.Hash, data []byte) (header [headerSize]byte) {
	n := copy(header[:], magic)
	n += copy(header[n:], s[:])
	copy(header[n:], block[:])
	binary.LittleEndian.PutUint64(header[sumOffset:], checksum(header[:sumOffset], data))
	return header
}

// intact reports whether a header is that of the block with this data.
func (s *Space) intact(header []byte, block *blockhash.Hash, data []byte) bool {
	want := s.encode(block, data)
	return bytes.Equal(header, want[:])
}

func checksum(header, data []byte) uint64 {
	h := xxh3.New()
	_, _ = h.Write(header)
	_, _ = h.Write(data)
	return h.Sum64()
}
