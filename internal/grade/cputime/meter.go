package cputime

import (
	"errors"
	"fmt"
	"time"
)

// ErrTime is wrapped where a process has used up a limit, or waits for something
// that does not come.
var ErrTime = errors.New("it does not come back")

// ErrSlow is wrapped where a process has come to its end in time, but used so much of a
// limit that it might not elsewhere.
var ErrSlow = errors.New("it is too slow to be judged")

// ErrStarved is wrapped where the machine gives a process too little of its
// processors to say anything of it.
var ErrStarved = errors.New("the machine is too busy")

// LookEvery is the time from one Look to the next.
const LookEvery = time.Second

const (
	mostFaults = 1 << 19               // page faults of a limit
	fine       = 4                     // a limit divided by this is what may be used without ErrSlow
	mostAsleep = 10                    // looks, one after the other, at which it sleeps and has done nothing
	mostLooks  = 300                   // at one call
	precision  = 50 * time.Millisecond // of what was used before a call
)

// A Limit is work of a process, from a beginning on.
type Limit struct {
	What string // in the text of an error
	Most time.Duration
	from Usage
}

// A Meter judges a process by two limits: all that it does, and what it does in one
// call. It is looked at every LookEvery while a call is not over; no clock decides.
//
// A process has used up a limit when its work is the limit times the slowness of the machine
// (Slowness), measured at that moment. What ends in time with a fourth of that is all right. What
// ends in between is trouble (ErrSlow). So a process is never all right in one run
// and over its limit in another, unless the measure is wrong by a factor of four.
type Meter struct {
	Usage    func() (Usage, error)
	Slowness func() (float64, error) // 1 or more
	Now      func() time.Time

	process, call Limit
	last          Usage
	sampled       time.Time
	slowness      float64
	measured      time.Time // the slowness
	looks         int       // at this call
	asleep, still int       // of them: asleep; the last ones at which it has done nothing either
}

// NewMeter is for a process that was started just now.
func NewMeter(pid int, process time.Duration) *Meter {
	return &Meter{
		Usage: func() (Usage, error) { return Of(pid) }, Slowness: Slowness, Now: time.Now,
		process: Limit{What: "all calls together", Most: process}, slowness: 1,
	}
}

// Begin is the beginning of a call.
func (m *Meter) Begin(most time.Duration) {
	m.sample()
	m.call = Limit{What: "it", Most: most, from: m.last}
	m.looks, m.asleep, m.still = 0, 0, 0
}

// End is the end of a call.
func (m *Meter) End() error {
	if !m.sample() {
		return nil
	}
	if err := m.judge(&m.process, false); err != nil {
		return err
	}
	return m.judge(&m.call, true)
}

// Close is for a process that makes no more calls.
func (m *Meter) Close() error {
	m.sampled = time.Time{}
	m.sample()
	return m.judge(&m.process, true)
}

// Finish is for a process that has ended, and has used this.
func (m *Meter) Finish(all Usage) error {
	m.last = all
	return m.judge(&m.process, true)
}

// Look is for a call that is not over.
func (m *Meter) Look() error {
	before := m.last.CPU
	m.sampled = time.Time{}
	if !m.sample() {
		return nil // it is gone
	}
	m.looks++
	m.still++
	if m.last.Asleep {
		m.asleep++
	}
	if !m.last.Asleep || m.last.CPU != before {
		m.still = 0
	}
	for _, l := range []*Limit{&m.process, &m.call} {
		if err := m.judge(l, false); err != nil {
			return err
		}
	}
	switch {
	case m.still >= mostAsleep, m.looks >= mostLooks && m.asleep > mostLooks*3/4:
		return fmt.Errorf("%w: it waits for something", ErrTime)
	case m.looks >= mostLooks:
		return fmt.Errorf("%w: a call had %v of processor time in %v", ErrStarved, m.last.since(m.call.from).CPU.Round(time.Millisecond), mostLooks*LookEvery)
	}
	return nil
}

// sample reads the usage, unless next to nothing can have been used since the last time.
// It reports whether it has.
func (m *Meter) sample() bool {
	now := m.Now()
	slow := m.last.CPU > m.process.Most/fine // now it matters in which call the limit is reached
	if !slow && now.Sub(m.sampled) < precision {
		return false
	}
	u, err := m.Usage()
	if err != nil {
		return false
	}
	m.last, m.sampled = u, now
	return true
}

// judge says whether a limit is used up and, at the end of what it limits, whether too
// much of it was used.
func (m *Meter) judge(l *Limit, over bool) error {
	used := m.last.since(l.from)
	if l.Most == 0 {
		return nil // a process of which no call is watched
	}
	if used.share(l.Most, m.slowness) < 1.0/fine {
		return nil
	}
	if now := m.Now(); now.Sub(m.measured) >= LookEvery {
		slowness, err := m.Slowness()
		if err != nil {
			return err
		}
		m.slowness, m.measured = max(m.slowness, slowness), now
	}
	share := used.share(l.Most, m.slowness)
	text := func() string {
		if share == float64(used.Faults)/mostFaults {
			return fmt.Sprintf("%s made %d page faults, limit %d", l.What, used.Faults, mostFaults)
		}
		return fmt.Sprintf("%s took %v of processor time, limit %v", l.What, used.CPU.Round(100*time.Millisecond),
			time.Duration(float64(l.Most)*m.slowness).Round(100*time.Millisecond))
	}
	switch {
	case share >= 1:
		return fmt.Errorf("%w: %s", ErrTime, text())
	case over && share >= 1.0/fine:
		return fmt.Errorf("%w: %s, and only a fourth of that is certainly enough", ErrSlow, text())
	}
	return nil
}

// share is how much of a limit was used: 1 is all of it.
func (u Usage) share(most time.Duration, slowness float64) float64 {
	return max(float64(u.Work(slowness))/(float64(most)*slowness), float64(u.Faults)/mostFaults)
}
