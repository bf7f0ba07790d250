package paper

import (
	"fmt"
	"iter"
	"math"
	"math/bits"
)

// A Buddy hands out chunks of 2^k blocks. A free chunk is in the list of its
// size; when its buddy, which begins at its address xor its size, is free with
// the same size, they are one chunk (vllm/v0/RULES.md §11).
type Buddy struct {
	chunks []chunk // by first block
	lists  []list  // by k
	free   int     // blocks
}

type chunk struct {
	next, prev int32 // in the list
	free       int8  // k+1 if a free chunk begins here
	used       int8  // k+1 if a chunk that was handed out begins here
}

type list struct {
	head, tail int32
	n          int
}

// newBuddy carves the blocks into chunks, the largest first, none larger
// than largest, which must be a power of two.
func newBuddy(blocks, largest int) (*Buddy, error) {
	if largest < 1 || largest&(largest-1) != 0 || blocks < 0 || blocks >= math.MaxInt32 {
		return nil, fmt.Errorf("%w: %d blocks in chunks of at most %d: want a power of two", ErrConfig, blocks, largest)
	}
	b := &Buddy{chunks: make([]chunk, blocks), lists: make([]list, bits.Len(uint(largest)))}
	for k := range b.lists {
		b.lists[k] = list{head: -1, tail: -1}
	}
	at := 0
	for k := len(b.lists) - 1; k >= 0; k-- {
		for ; at+1<<k <= blocks; at += 1 << k {
			b.push(int32(at), k)
		}
	}
	return b, nil
}

// order is the k of the smallest chunk with n blocks.
func order(n int) int { return bits.Len(uint(max(n, 1) - 1)) }

// fits says whether count chunks of at least n blocks can be had together.
func (b *Buddy) fits(n, count int) bool {
	k := order(n)
	for j := k; j < len(b.lists) && count > 0; j++ {
		count -= b.lists[j].n << (j - k)
	}
	return count <= 0
}

// take hands out a chunk of at least n blocks: the one that was pushed last of
// the smallest size there is, whose upper halves are given back until it is
// small enough.
func (b *Buddy) take(n int) (start int32, size int, ok bool) {
	k := order(n)
	j := k
	for j < len(b.lists) && b.lists[j].n == 0 {
		j++
	}
	if j >= len(b.lists) {
		return 0, 0, false
	}
	at := b.lists[j].tail
	b.remove(at, j)
	for j > k {
		j--
		b.push(at+1<<j, j)
	}
	b.chunks[at].used = int8(k + 1)
	return at, 1 << k, true
}

// release gives back the chunk that begins at start.
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

func (b *Buddy) push(at int32, k int) {
	l := &b.lists[k]
	b.chunks[at] = chunk{next: -1, prev: l.tail, free: int8(k + 1)}
	if l.tail < 0 {
		l.head = at
	} else {
		b.chunks[l.tail].next = at
	}
	l.tail = at
	l.n++
	b.free += 1 << k
}

func (b *Buddy) remove(at int32, k int) {
	l, c := &b.lists[k], b.chunks[at]
	if c.prev < 0 {
		l.head = c.next
	} else {
		b.chunks[c.prev].next = c.next
	}
	if c.next < 0 {
		l.tail = c.prev
	} else {
		b.chunks[c.next].prev = c.prev
	}
	b.chunks[at] = chunk{}
	l.n--
	b.free -= 1 << k
}

// NumFree is the number of free blocks.
func (b *Buddy) NumFree() int { return b.free }

// Lists yields the sizes of which there are free chunks, and where they begin,
// in the order in which they became free.
func (b *Buddy) Lists() iter.Seq2[int, []int32] {
	return func(yield func(int, []int32) bool) {
		for k, l := range b.lists {
			starts := []int32{}
			for at := l.head; at >= 0; at = b.chunks[at].next {
				starts = append(starts, at)
			}
			if len(starts) > 0 && !yield(1<<k, starts) {
				return
			}
		}
	}
}
