package paper

import (
	"fmt"
	"iter"
	"math"
	"math/bits"
	"slices"

	"llmmemory/internal/scheduling/reqtable"
)

// A Buddy is a buddy allocator of chunks of 2^k blocks. The buddy of a chunk begins at the start of the chunk xor
// the chunk's size. Two free buddies of the same size are merged, unless they have the maximum size (vllm/v0/RULES.md
// §11).
type Buddy struct {
	chunks []chunk           // by first block
	lists  []*reqtable.Queue // free chunks of 2^k blocks, by k
	free   int               // blocks
}

type chunk struct {
	free int8 // k+1 if a free chunk begins here, otherwise 0
	used int8 // k+1 if a used chunk begins here, otherwise 0
}

// newBuddy returns a Buddy whose blocks are split into free chunks, the largest chunks first. No chunk has more than
// maxChunk blocks. maxChunk must be a power of two.
func newBuddy(blocks, maxChunk int) (*Buddy, error) {
	if maxChunk < 1 || maxChunk&(maxChunk-1) != 0 || blocks < 0 || blocks >= math.MaxInt32 {
		return nil, fmt.Errorf("%w: %d blocks in chunks of at most %d: want a power of two", ErrConfig, blocks, maxChunk)
	}
	b := &Buddy{chunks: make([]chunk, blocks), lists: reqtable.NewQueues(blocks, bits.Len(uint(maxChunk)))}
	start := 0
	for k := len(b.lists) - 1; k >= 0; k-- {
		for ; start+1<<k <= blocks; start += 1 << k {
			b.push(int32(start), k)
		}
	}
	return b, nil
}

// order returns the smallest k for which a chunk of 2^k blocks has at least n blocks.
func order(n int) int { return bits.Len(uint(max(n, 1) - 1)) }

// fits reports whether the free chunks are enough to take count chunks of at least n blocks each.
func (b *Buddy) fits(n, count int) bool {
	k := order(n)
	for j := k; j < len(b.lists) && count > 0; j++ {
		count -= b.lists[j].Len() << (j - k)
	}
	return count <= 0
}

// take returns a chunk of at least n blocks. Among the free chunks of the smallest sufficient size, it takes the
// chunk that was freed last, and halves this chunk until it is small enough. The upper halves become free.
func (b *Buddy) take(n int) (start int32, size int, ok bool) {
	k := order(n)
	j := k
	for j < len(b.lists) && b.lists[j].Len() == 0 {
		j++
	}
	if j >= len(b.lists) {
		return 0, 0, false
	}
	start = b.lists[j].Tail()
	b.remove(start, j)
	for j > k {
		j--
		b.push(start+1<<j, j)
	}
	b.chunks[start].used = int8(k + 1)
	return start, 1 << k, true
}

func (b *Buddy) release(start int32) {
	if uint(start) >= uint(len(b.chunks)) || b.chunks[start].used == 0 {
		panic(fmt.Sprintf("a chunk at %d is freed, but none was handed out there", start))
	}
	k := int(b.chunks[start].used) - 1
	b.chunks[start].used = 0
	for k < len(b.lists)-1 {
		buddy := start ^ 1<<k
		if int(buddy) >= len(b.chunks) || b.chunks[buddy].free != int8(k+1) {
			break
		}
		b.remove(buddy, k)
		start = min(start, buddy)
		k++
	}
	b.push(start, k)
}

func (b *Buddy) push(start int32, k int) {
	b.lists[k].PushBack(start)
	b.chunks[start] = chunk{free: int8(k + 1)}
	b.free += 1 << k
}

func (b *Buddy) remove(start int32, k int) {
	b.lists[k].Remove(start)
	b.chunks[start] = chunk{}
	b.free -= 1 << k
}

// NumFree is the number of free blocks.
func (b *Buddy) NumFree() int { return b.free }

// Lists yields the sizes of which there are free chunks. With each size, in blocks, it yields the first blocks of the
// free chunks of this size, in the order in which the chunks became free.
func (b *Buddy) Lists() iter.Seq2[int, []int32] {
	return func(yield func(int, []int32) bool) {
		for k, l := range b.lists {
			if starts := slices.Collect(l.All()); len(starts) > 0 && !yield(1<<k, starts) {
				return
			}
		}
	}
}
