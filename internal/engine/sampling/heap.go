package sampling

import "slices"

// before orders tokens by weight, the heaviest first, and by number.
func (s *Sampler) before(a, b int32) bool {
	return s.logits[a] > s.logits[b] || s.logits[a] == s.logits[b] && a < b
}

// heapify makes order a heap over all tokens, the heaviest in front.
func (s *Sampler) heapify() {
	s.order = slices.Grow(s.order[:0], len(s.logits))[:len(s.logits)]
	for i := range s.order {
		s.order[i] = int32(i)
	}
	for i := len(s.order)/2 - 1; i >= 0; i-- {
		s.sift(i, len(s.order))
	}
}

func (s *Sampler) sift(i, n int) {
	h := s.order
	for {
		child := 2*i + 1
		if child >= n {
			return
		}
		if child+1 < n && s.before(h[child+1], h[child]) {
			child++
		}
		if !s.before(h[child], h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

// pop takes the k heaviest tokens out of the heap, one after the other, until
// enough, which gets how many there are and the sum of their weights, says so.
// They stand at the end of order then, the heaviest last.
func (s *Sampler) pop(k int, enough func(kept int, sum float64) bool) {
	n, sum := len(s.order), 0.0
	for popped := range k {
		last := n - 1 - popped
		s.order[0], s.order[last] = s.order[last], s.order[0]
		s.sift(0, last)
		sum += float64(s.logits[s.order[last]])
		s.popped = popped + 1
		if enough(s.popped, sum) {
			break
		}
	}
}

// kept are the tokens that were popped, the heaviest first.
func (s *Sampler) kept() []int32 {
	kept := s.order[len(s.order)-s.popped:]
	slices.Reverse(kept)
	return kept
}
