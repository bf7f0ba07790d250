package replay

import (
	"fmt"
	"slices"
	"time"

	"llmmemory/internal/vllm/blockhash"
)

// A Speed is how long the operations of a recording take alone: it was decoded
// before, its hashes are known, and nothing is compared.
type Speed struct {
	Operations int
	Median     time.Duration // of all operations of a pass
}

// PerSecond is how many operations a second has.
func (s Speed) PerSecond() float64 {
	return float64(s.Operations) / max(s.Median.Seconds(), 1e-9)
}

// Measure plays t, of V1, passes times. t must have been verified.
func Measure(t *Trace, passes int) (Speed, error) {
	base, _ := blockhash.ByName(t.header.Config.Hash)
	known := &recorder{Function: base}
	var times []time.Duration
	for pass := range passes + 1 { // the first one records the hashes
		var hash blockhash.Function = known
		if pass > 0 {
			hash = &playback{root: base.Root(), hashes: known.hashes}
		}
		p, err := newPlayer(t, hash)
		if err != nil {
			return Speed{}, err
		}
		spent, err := playAll(t, p)
		if err != nil {
			return Speed{}, err
		}
		if pass > 0 {
			times = append(times, spent)
		}
	}
	slices.Sort(times)
	return Speed{Operations: len(t.Ops), Median: times[len(times)/2]}, nil
}

func playAll(t *Trace, p player) (time.Duration, error) {
	start := time.Now()
	for i := range t.Ops {
		if err := p.apply(&t.Ops[i], nil); err != nil {
			return 0, fmt.Errorf("%w: line %d: %w", ErrTrace, t.Ops[i].Line, err)
		}
		if w, ok := p.(interface{ forgetEvents() }); ok {
			w.forgetEvents()
		}
	}
	if s, ok := p.(*schedulerPlayer); ok {
		return s.spent, nil // without the work of translating names
	}
	return time.Since(start), nil
}

// A recorder remembers the hashes it gives out.
type recorder struct {
	blockhash.Function
	hashes []blockhash.Hash
}

func (r *recorder) Sum(out, parent *blockhash.Hash, tokens []int32, extra []blockhash.Key) {
	r.Function.Sum(out, parent, tokens, extra)
	r.hashes = append(r.hashes, *out)
}

// A playback gives them out again.
type playback struct {
	root   blockhash.Hash
	hashes []blockhash.Hash
	next   int
}

func (p *playback) Root() blockhash.Hash { return p.root }

func (p *playback) Sum(out, _ *blockhash.Hash, _ []int32, _ []blockhash.Key) {
	*out = p.hashes[p.next]
	p.next++
}
