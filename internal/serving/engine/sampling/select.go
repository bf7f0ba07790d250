package sampling

import (
	"cmp"
	"math"
	"slices"
)

// This file finds the heaviest tokens without sorting all tokens. It counts tokens in buckets by the first bits of
// their weight, and sorts only the tokens of one bucket.

// Weights are at most 1. A bucket holds the weights with the same exponent and the same first four bits of the
// mantissa. The first bucket begins at 2^-40, the smallest weight that can be drawn.
const (
	bucketShift = 23 - 4
	lightest    = (127 - 40) << 4
	numBuckets  = 40<<4 + 1
)

func bucket(w float32) uint32 {
	return max(math.Float32bits(w)>>bucketShift, lightest) - lightest
}

// buckets has the number of tokens and the sum of their weights for each bucket.
type buckets struct {
	counts [numBuckets]int32
	sums   [numBuckets]uint64
}

func (s *Sampler) count() *buckets {
	if s.buckets == nil {
		s.buckets = &buckets{}
	}
	b := s.buckets
	*b = buckets{}
	for _, w := range s.logits {
		if w >= 1.0/unit {
			index := bucket(w)
			b.counts[index]++
			b.sums[index] += integer(w)
		}
	}
	return b
}

// compare compares tokens for a sort: the heaviest first, and tokens of equal weight by their ids.
func (s *Sampler) compare(a, b int32) int {
	return cmp.Or(cmp.Compare(s.logits[b], s.logits[a]), int(a-b))
}

// keepK sets all weights except the k heaviest to 0.
func (s *Sampler) keepK(k int) {
	b, kept := s.count(), 0
	for index := numBuckets - 1; index >= 0; index-- {
		n := int(b.counts[index])
		if kept+n > k {
			list := s.bucketInOrder(uint32(index))
			s.drop(uint32(index), list[k-kept:])
			return
		}
		kept += n
	}
}

// keepP keeps the heaviest tokens, as few as possible, whose weights sum to at least p times the sum of all
// weights, in integers. It sets the other weights to 0.
func (s *Sampler) keepP(p float64) {
	b, total := s.count(), uint64(0)
	for _, sum := range b.sums {
		total += sum
	}
	enough, sum := fraction(part(p), total), uint64(0)
	for index := numBuckets - 1; index >= 0; index-- {
		if b.counts[index] == 0 || sum+b.sums[index] < enough {
			sum += b.sums[index]
			continue
		}
		list := s.bucketInOrder(uint32(index))
		for i, id := range list {
			if sum += integer(s.logits[id]); sum >= enough {
				list = list[i+1:]
				break
			}
			if i == len(list)-1 {
				list = nil
			}
		}
		s.drop(uint32(index), list)
		return
	}
}

// part returns p × 2^64, for p below 1.
func part(p float64) uint64 { return uint64(p * (1 << 64)) }

// bucketInOrder returns the tokens of a bucket, the heaviest first.
func (s *Sampler) bucketInOrder(index uint32) []int32 {
	s.order = s.order[:0]
	for id, w := range s.logits {
		if w >= 1.0/unit && bucket(w) == index {
			s.order = append(s.order, int32(id))
		}
	}
	slices.SortFunc(s.order, s.compare)
	return s.order
}

// drop sets to 0 the weights in the buckets with an index below limit, and the weights of the given tokens.
func (s *Sampler) drop(limit uint32, tokens []int32) {
	for id, w := range s.logits {
		if bucket(w) < limit {
			s.logits[id] = 0
		}
	}
	for _, id := range tokens {
		s.logits[id] = 0
	}
}

// heaviest returns the n allowed tokens with the largest values, in descending order. Values may be negative.
func (s *Sampler) heaviest(n int, st *State) []int32 {
	s.order = s.order[:0]
	for i := range s.logits {
		id := int32(i)
		if !st.Allows(id) || len(s.order) == n && s.compare(s.order[n-1], id) < 0 {
			continue
		}
		if len(s.order) < n {
			s.order = append(s.order, id)
		}
		place := len(s.order) - 1
		for ; place > 0 && s.compare(id, s.order[place-1]) < 0; place-- {
			s.order[place] = s.order[place-1]
		}
		s.order[place] = id
	}
	return s.order
}
