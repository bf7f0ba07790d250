package pool

import (
	"math/rand/v2"
	"time"
)

// Residency is how long sampled blocks kept their contents and how they were used, in
// sums over those that have lost them (vllm/v1/RULES.md §12).
type Residency struct {
	Evicted  int           // blocks
	Lifetime time.Duration // since they were handed out
	Idle     time.Duration // since they were hit last, or handed out
	Gaps     int           // between two hits; of each block the last four hits count
	GapTime  time.Duration
}

// A sampler measures a part of the blocks.
type sampler struct {
	rate   float64
	random func() float64       // uniform in [0, 1)
	now    func() time.Duration // never goes back
	lives  map[int32]*life
	sums   Residency
}

// A life is a block's time since it was handed out.
type life struct {
	born, last time.Duration
	hits       [4]time.Duration // the last ones, the oldest first
	n          int
}

// newSampler is nil for rate 0.
func newSampler(rate float64) *sampler {
	if rate == 0 {
		return nil
	}
	start := time.Now()
	return &sampler{
		rate: rate, random: rand.Float64, now: func() time.Duration { return time.Since(start) }, lives: map[int32]*life{},
	}
}

// handedOut ends the block's old life, and begins a new one if it is drawn.
func (s *sampler) handedOut(id int32) {
	s.evicted(id)
	if s.random() < s.rate {
		now := s.now()
		s.lives[id] = &life{born: now, last: now}
	}
}

func (s *sampler) hit(id int32) {
	l := s.lives[id]
	if l == nil {
		return
	}
	l.last = s.now()
	if l.n == len(l.hits) {
		copy(l.hits[:], l.hits[1:])
		l.n--
	}
	l.hits[l.n] = l.last
	l.n++
}

func (s *sampler) evicted(id int32) {
	l := s.lives[id]
	if l == nil {
		return
	}
	delete(s.lives, id)
	now := s.now()
	s.sums.Evicted++
	s.sums.Lifetime += now - l.born
	s.sums.Idle += now - l.last
	if l.n > 1 {
		s.sums.Gaps += l.n - 1
		s.sums.GapTime += l.hits[l.n-1] - l.hits[0]
	}
}

// TakeResidency returns the sums since the last call.
func (p *Pool) TakeResidency() Residency {
	if p.sampler == nil {
		return Residency{}
	}
	sums := p.sampler.sums
	p.sampler.sums = Residency{}
	return sums
}
