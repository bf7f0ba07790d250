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

// A Tier stores blocks of one Space. Its methods are safe for concurrent use and return soon after the context is done.
type Tier interface {
	// Count returns the number of leading blocks that the tier has.
	Count(ctx context.Context, blocks []blockhash.Hash) (int, error)

	// Load reads blocks into the slices of dst, which have the size of a block. It returns the number of leading blocks
	// that it has read whole. It removes a damaged block. After an error, or when the context is done, a read may still
	// write to the memory. The caller must not reuse the memory in these cases.
	Load(ctx context.Context, blocks []blockhash.Hash, dst [][]byte) (int, error)

	// Store stores the block in m, unless the tier has this block. It may use the memory even after the context is
	// done.
	Store(ctx context.Context, block blockhash.Hash, m Memory) error

	Close() error
}

// ErrDamaged is wrapped by the error of Load when the bytes read are not those that were stored.
var ErrDamaged = errors.New("the block is damaged")

// A Space identifies what determines a block's bytes besides what the hash depends on. These are the weights, the shape
// and type of keys and values, and the arithmetic. A tier of one space never returns blocks of another.
type Space [16]byte

// NewSpace returns the space with the given description. The same parts in another order are the description of another
// space.
func NewSpace(description ...string) Space {
	h := xxh3.New()
	for _, part := range description {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(part))))
		_, _ = h.WriteString(part)
	}
	return h.Sum128().Bytes()
}

func (s Space) String() string { return hex.EncodeToString(s[:]) }

// A stored block consists of five parts, in this order:
//
//	the magic number
//	the space
//	the hash of the block
//	an XXH3 checksum of the other four parts
//	the data of the block
const (
	magic      = "llmkv 1\n"
	sumOffset  = len(magic) + len(Space{}) + len(blockhash.Hash{})
	headerSize = sumOffset + 8
)

// A Memory holds a block to store. It has space for the header before the block, so that a tier can write
// both without copying the block.
type Memory struct {
	whole []byte // whole pages
	size  int    // bytes of the block
}

// alignment is the alignment of memory, offsets and lengths that writes need to bypass the page cache. If a file system
// needs more, writes use the page cache (see writeUnbuffered).
const alignment = 4096

func NewMemory(size int) Memory {
	n := (headerSize + size + alignment - 1) &^ (alignment - 1)
	b := make([]byte, n+alignment)
	offset := -int(uintptr(unsafe.Pointer(&b[0]))) & (alignment - 1)
	return Memory{b[offset : offset+n], size}
}

// Block returns the memory of the block.
func (m Memory) Block() []byte { return m.whole[headerSize : headerSize+m.size] }

func (m Memory) stored(s *Space, block *blockhash.Hash) []byte {
	header := s.encode(block, m.Block())
	copy(m.whole, header[:])
	return m.whole[:headerSize+m.size]
}

func (s *Space) encode(block *blockhash.Hash, data []byte) (header [headerSize]byte) {
	n := copy(header[:], magic)
	n += copy(header[n:], s[:])
	copy(header[n:], block[:])
	binary.LittleEndian.PutUint64(header[sumOffset:], checksum(header[:sumOffset], data))
	return header
}

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
