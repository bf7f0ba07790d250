package pool

// Residency samples how long blocks stay in the cache and how they are used
// there (vllm/v1/RULES.md §12).
type Residency struct {
	rate   float64
	random func() float64 // uniform in [0, 1)
	now    func() int64   // ns, never backwards
	lives  map[int32]life
	ended  []Stay
}

// A life is a sampled block's time since it was handed out.
type life struct {
	born, last int64
	accesses   [4]int64 // the last ones, oldest first
	n          int
}

// A Stay is a block's finished time in the cache, in ns.
type Stay struct {
	Lifetime int64
	Idle     int64   // since the last access
	Gaps     []int64 // between the last accesses, at most 3
}

// NewResidency samples the part rate of all blocks handed out. random and now
// are the sources of chance and of time in ns.
func NewResidency(rate float64, random func() float64, now func() int64) *Residency {
	return &Residency{rate: rate, random: random, now: now, lives: map[int32]life{}}
}

// reused ends the block's old life, if it could be cached, and may begin a new
// one.
func (r *Residency) reused(id int32, caching bool) {
	if caching {
		r.evicted(id)
	}
	if r.random() < r.rate {
		now := r.now()
		r.lives[id] = life{born: now, last: now}
	}
}

func (r *Residency) accessed(id int32) {
	l, ok := r.lives[id]
	if !ok {
		return
	}
	l.last = r.now()
	if l.n == len(l.accesses) {
		copy(l.accesses[:], l.accesses[1:])
		l.n--
	}
	l.accesses[l.n] = l.last
	l.n++
	r.lives[id] = l
}

func (r *Residency) evicted(id int32) {
	l, ok := r.lives[id]
	if !ok {
		return
	}
	delete(r.lives, id)
	now := r.now()
	stay := Stay{Lifetime: now - l.born, Idle: now - l.last}
	for i := 1; i < l.n; i++ {
		stay.Gaps = append(stay.Gaps, l.accesses[i]-l.accesses[i-1])
	}
	r.ended = append(r.ended, stay)
}

func (r *Residency) reset() {
	clear(r.lives)
	r.ended = nil
}

// Take returns the stays that ended since the last call.
func (r *Residency) Take() []Stay {
	ended := r.ended
	r.ended = nil
	return ended
}
