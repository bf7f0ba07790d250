package workload

import (
	"errors"
	"fmt"
	"io"
	"math"
)

// A next is a function that implements Source.
type next func(*Request) error

func (n next) Next(r *Request) error { return n(r) }

// FirstRequests returns a source of the first n requests of s.
func FirstRequests(s Source, n int) Source {
	return next(func(r *Request) error {
		if n <= 0 {
			return io.EOF
		}
		n--
		return s.Next(r)
	})
}

// AtOnce returns a source whose requests all arrive at 0.
func AtOnce(s Source) Source {
	return next(func(r *Request) error {
		err := s.Next(r)
		r.Arrival = 0
		return err
	})
}

// AtMultiple returns a source with the requests of s. Their rate is the rate of s multiplied by factor. The error
// wraps ErrSetting.
func AtMultiple(s Source, factor float64) (Source, error) {
	if !(factor > 0) || math.IsInf(factor, 0) {
		return nil, fmt.Errorf("%w: arrivals %v times as often; the factor must be a number above 0", ErrSetting, factor)
	}
	return next(func(r *Request) error {
		err := s.Next(r)
		r.Arrival /= factor
		return err
	}), nil
}

// ArrivingBefore returns a source of the requests of s that arrive before end, in seconds.
func ArrivingBefore(s Source, end float64) Source {
	return next(func(r *Request) error {
		err := s.Next(r)
		if err == nil && r.Arrival >= end {
			return io.EOF
		}
		return err
	})
}

// ErrNoneFits is wrapped when almost all requests of a workload are too long.
var ErrNoneFits = errors.New("almost no request fits")

// Fitted.Next might search forever if the source is random and never ends. It therefore returns an error when at least
// manyDropped requests were too long, and these are more than minFitting times as many as the other requests.
const (
	minFitting  = 1000
	manyDropped = 10_000
)

// WithoutLonger returns a source without the requests of s whose prompt and output together have more tokens than
// limit. If s is random and never ends, other lengths are drawn for such a request, so the rate stays the same.
func WithoutLonger(s Source, limit int) *Fitted {
	f := &Fitted{source: s, limit: limit}
	if d, ok := s.(*drawn); ok && d.endless && d.end == 0 {
		f.endless = d
	}
	return f
}

// Fitted is a source without requests that are too long.
type Fitted struct {
	Dropped int // so far
	taken   int
	source  Source
	limit   int
	endless *drawn // the source, if it is endless
}

// LeftOut returns the fraction of the requests so far that were too long.
func (f *Fitted) LeftOut() float64 { return float64(f.Dropped) / float64(max(1, f.Dropped+f.taken)) }

// Next implements Source. The error wraps ErrNoneFits if s is random and never ends, and almost no request fits.
func (f *Fitted) Next(r *Request) error {
	err := f.source.Next(r)
	for err == nil && r.Prompt+r.Output > f.limit {
		f.Dropped++
		switch {
		case f.endless == nil:
			err = f.source.Next(r)
		case f.Dropped >= manyDropped && f.Dropped > minFitting*f.taken:
			return fmt.Errorf("%w: %d of %d requests are longer than the %d tokens of a sequence; raise --max-len or take "+
				"another model or workload",
				ErrNoneFits, f.Dropped, f.Dropped+f.taken, f.limit)
		default:
			r.Prompt, r.Output = f.endless.lengths.Draw(f.endless.rng)
		}
	}
	if err == nil {
		f.taken++
	}
	return err
}
