package cputime

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrTime means that a process has reached a limit of processor time or of page faults. It is also the error of a
	// process that waits for an event forever.
	ErrTime = errors.New("it does not come back")

	// ErrSlow means that a process ended near its limit. On another machine, it could reach the limit.
	ErrSlow = errors.New("it is too slow to be judged")

	// ErrStarved means that the machine gave a process too little processor time to judge it.
	ErrStarved = errors.New("the machine is too busy")
)

// LookEvery is the time from one Look to the next.
const LookEvery = time.Second

const (
	maxFaults = 1 << 19               // page faults of a limit
	fine      = 4                     // a process that has used less than 1/fine of a limit is accepted, without ErrSlow
	maxAsleep = 10                    // consecutive looks at which the process sleeps and has used nothing
	maxLooks  = 300                   // at one call
	precision = 50 * time.Millisecond // of the usage at the beginning of a call
)

// A Limit limits the work of a process. start is the usage of the process when the limit began; work before that does
// not count.
type Limit struct {
	What  string // in the text of an error
	Max   time.Duration
	start Usage
}

// A Meter judges a process by two limits: one for all its work, and one for its work in one call. During a call, Look
// must be called every LookEvery. Elapsed time has no influence, except for a call that has not returned. Such a call
// fails if the process sleeps and uses no processor time in maxAsleep looks in a row. After maxLooks looks, it fails if
// the process was asleep in more than three quarters of them. Otherwise the machine is too busy (ErrStarved).
//
// The limits are for a machine of slowness 1. When a process comes near a limit, the Meter measures the slowness of the
// machine (Slowness) and multiplies the limit by it. This measurement may be wrong by a factor of up to four. So there
// are three results for a call that has returned:
//
//   - If it used less than a fourth of the multiplied limit, it is accepted.
//   - If it used the whole multiplied limit, it fails (ErrTime).
//   - Otherwise, it is too slow to be judged (ErrSlow).
//
// If the processor time of a call is accepted in one run, it exceeds the limit in another only if the slowness was
// measured wrongly by more than a factor of four. The number of page faults is judged in the same way, but its limit
// (maxFaults) does not depend on the slowness.
type Meter struct {
	Usage    func() (Usage, error)
	Slowness func() (float64, error) // 1 or more
	Now      func() time.Time

	process, call Limit
	last          Usage
	sampled       time.Time
	slowness      float64
	measured      time.Time // when slowness was measured
	looks         int       // looks of this call
	asleep        int       // looks of this call that found the process asleep
	idle          int       // the number of latest looks in a row that found it asleep and its processor time unchanged
}

// NewMeter returns a Meter for the process pid, which has just been started. process is the limit for all its work.
func NewMeter(pid int, process time.Duration) *Meter {
	return &Meter{
		Usage: func() (Usage, error) { return usageOf(pid) }, Slowness: Slowness, Now: time.Now,
		process: Limit{What: "all calls together", Max: process}, slowness: 1,
	}
}

// Begin starts a call with a limit of processor time.
func (m *Meter) Begin(limit time.Duration) {
	m.sample()
	m.call = Limit{What: "it", Max: limit, start: m.last}
	m.looks, m.asleep, m.idle = 0, 0, 0
}

// End ends a call that has returned, and judges it.
func (m *Meter) End() error {
	if !m.sample() {
		return nil
	}
	if err := m.judge(&m.process, false); err != nil {
		return err
	}
	return m.judge(&m.call, true)
}

// Close judges a process that makes no more calls.
func (m *Meter) Close() error {
	m.sampled = time.Time{}
	m.sample()
	return m.judge(&m.process, true)
}

// Finish judges a process that has ended. all is its usage from start to end.
func (m *Meter) Finish(all Usage) error {
	m.last = all
	return m.judge(&m.process, true)
}

// Look judges a call that has not returned.
func (m *Meter) Look() error {
	before := m.last.CPU
	m.sampled = time.Time{}
	if !m.sample() {
		return nil // it is gone
	}
	m.looks++
	m.idle++
	if m.last.Asleep {
		m.asleep++
	}
	if !m.last.Asleep || m.last.CPU != before {
		m.idle = 0
	}
	for _, l := range []*Limit{&m.process, &m.call} {
		if err := m.judge(l, false); err != nil {
			return err
		}
	}
	switch {
	case m.idle >= maxAsleep, m.looks >= maxLooks && m.asleep > maxLooks*3/4:
		return fmt.Errorf("%w: it waits for something", ErrTime)
	case m.looks >= maxLooks:
		return fmt.Errorf("%w: a call had %v of processor time in %v", ErrStarved, m.last.since(m.call.start).CPU.Round(time.Millisecond), maxLooks*LookEvery)
	}
	return nil
}

// sample reads the usage of the process and reports whether it did so. It does not read the usage if the last reading
// was only a short time ago (less than the constant precision). But once the process has used more than 1/fine of its
// processor time limit, sample reads the usage each time.
func (m *Meter) sample() bool {
	now := m.Now()
	slow := m.last.CPU > m.process.Max/fine // now it matters in which call the limit is reached
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

// judge returns ErrTime if the process has reached the limit. ended means that the process or the call has ended. If
// ended is set, judge returns ErrSlow if a fourth of the limit was used, because the slowness of the machine may be
// wrong by a factor of four. judge also returns the error of Slowness.
func (m *Meter) judge(l *Limit, ended bool) error {
	used := m.last.since(l.start)
	if l.Max == 0 {
		return nil // no call is limited
	}
	if used.share(l.Max, m.slowness) < 1.0/fine {
		return nil
	}
	if now := m.Now(); now.Sub(m.measured) >= LookEvery {
		slowness, err := m.Slowness()
		if err != nil {
			return err
		}
		m.slowness, m.measured = max(m.slowness, slowness), now
	}
	share := used.share(l.Max, m.slowness)
	text := func() string {
		if share == float64(used.Faults)/maxFaults {
			return fmt.Sprintf("%s made %d page faults, limit %d", l.What, used.Faults, maxFaults)
		}
		return fmt.Sprintf("%s took %v of processor time, limit %v", l.What, used.CPU.Round(100*time.Millisecond),
			time.Duration(float64(l.Max)*m.slowness).Round(100*time.Millisecond))
	}
	switch {
	case share >= 1:
		return fmt.Errorf("%w: %s", ErrTime, text())
	case ended && share >= 1.0/fine:
		return fmt.Errorf("%w: %s, and only a fourth of that is certainly enough", ErrSlow, text())
	}
	return nil
}

func (u Usage) share(limit time.Duration, slowness float64) float64 {
	return max(float64(u.Work(slowness))/(float64(limit)*slowness), float64(u.Faults)/maxFaults)
}
