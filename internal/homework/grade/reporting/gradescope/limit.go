package gradescope

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Limit is the number of submissions that are graded within any period of length Window. The zero Limit is no limit.
type Limit struct {
	Count  int
	Window time.Duration
}

// ErrLimit is wrapped by the errors of parseLimit.
var ErrLimit = errors.New("not a rate limit, which reads like 10/24h, 3/90m or 5/2d")

func parseLimit(text string) (Limit, error) {
	number, duration, _ := strings.Cut(text, "/")
	count, err := strconv.Atoi(number)
	if err != nil || count < 1 {
		return Limit{}, fmt.Errorf("%q: %w", text, ErrLimit)
	}
	window, err := time.ParseDuration(duration)
	if days, found := strings.CutSuffix(duration, "d"); found {
		var n int
		n, err = strconv.Atoi(days)
		window = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || window <= 0 {
		return Limit{}, fmt.Errorf("%q: %w", text, ErrLimit)
	}
	return Limit{count, window}, nil
}

// String is the limit as part of a sentence.
func (l Limit) String() string {
	duration := l.Window.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(duration, zero) {
			duration = duration[:len(duration)-2]
		}
	}
	return fmt.Sprintf("%d within %s", l.Count, duration)
}

// reached reports whether the limit refuses a submission. If so, next is the time from which a submission will be
// graded. submitted is the time of the submission. counted has the times of the earlier submissions that count, in
// order.
func (l Limit) reached(submitted time.Time, counted []time.Time) (next time.Time, refused bool) {
	if l.Count == 0 || len(counted) < l.Count {
		return time.Time{}, false
	}
	next = counted[len(counted)-l.Count].Add(l.Window)
	return next, submitted.Before(next)
}

// counted returns the times of the earlier submissions that count, in order. A submission does not count if the grader
// failed, if there was no file, if the file was rejected (grade.Rejection), or if the limit refused it.
func (l Limit) counted(m *metadata) []time.Time {
	var counted []time.Time
	for _, p := range m.Previous {
		if p.Errored || slices.ContainsFunc(m.uncounted(), p.Time.Equal) {
			continue
		}
		if _, refused := l.reached(p.Time, counted); !refused {
			counted = append(counted, p.Time)
		}
	}
	return counted
}
