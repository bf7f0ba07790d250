// Package servetest drives schedulers in tests. It acts as the model and as its worker. Instead of keys and values,
// the worker's blocks have digests: the slot of a token has the digest of all tokens up to this one. So servetest can
// check after each iteration that every sequence attends to its own tokens, whatever was shared, copied, swapped or
// computed again.
package servetest

import (
	"fmt"

	"llmmemory/internal/scheduling/device"
	"llmmemory/internal/scheduling/serve"
)

// A Worker runs the model. It has the memory of the blocks.
type Worker interface {
	// Apply makes the copies of an iteration.
	Apply(*serve.Iteration)

	// Write computes the tokens [start, end) of a sequence.
	Write(table []int32, q *Sequence, start, end int) error

	// Read returns an error unless the blocks have the tokens [start, end) of the sequence.
	Read(table []int32, q *Sequence, start, end int) error
}

// A Sequence is tokens, with the digests of all its prefixes.
type Sequence struct {
	Tokens []int32
	sums   []uint64
}

func newSequence(tokens []int32) *Sequence { return &Sequence{tokens, Digests(tokens)} }

// Memory is a Worker without a model. The slots of its blocks, on the GPU and on the CPU, store digests instead of keys
// and values.
type Memory struct {
	size     int
	gpu, cpu map[int32][]uint64
}

// NewMemory returns blocks of blockSize tokens.
func NewMemory(blockSize int) *Memory {
	return &Memory{blockSize, map[int32][]uint64{}, map[int32][]uint64{}}
}

func (m *Memory) block(device map[int32][]uint64, id int32) []uint64 {
	if device[id] == nil {
		device[id] = make([]uint64, m.size)
	}
	return device[id]
}

func (m *Memory) move(pairs []device.Pair, src, dst map[int32][]uint64) {
	for _, c := range pairs {
		copy(m.block(dst, c.Dst), m.block(src, c.Src))
	}
}

// Apply implements Worker.
func (m *Memory) Apply(it *serve.Iteration) {
	m.move(it.SwapOut, m.gpu, m.cpu)
	m.move(it.SwapIn, m.cpu, m.gpu)
	m.move(it.Copies, m.gpu, m.gpu)
}

// Write implements Worker.
func (m *Memory) Write(table []int32, q *Sequence, start, end int) error {
	for i := start; i < end; i++ {
		m.block(m.gpu, table[i/m.size])[i%m.size] = q.sums[i]
	}
	return nil
}

// Read implements Worker.
func (m *Memory) Read(table []int32, q *Sequence, start, end int) error {
	for i := start; i < end; i++ {
		if i/m.size >= len(table) {
			return fmt.Errorf("token %d has no block: the table has %d", i, len(table))
		}
		if m.block(m.gpu, table[i/m.size])[i%m.size] != q.sums[i] {
			return fmt.Errorf("block %d does not hold token %d of the sequence at %d", table[i/m.size], i, i%m.size)
		}
	}
	return nil
}

// Digests returns an FNV-1a hash of tokens[:i+1] for each i. Memory stores it in the slot of token i.
func Digests(tokens []int32) []uint64 {
	list := make([]uint64, len(tokens))
	h := uint64(14695981039346656037) // FNV-1a
	for i, token := range tokens {
		h = (h ^ uint64(uint32(token))) * 1099511628211
		list[i] = h
	}
	return list
}
