package jobs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A Shard is the part of all jobs that one of several machines runs.
type Shard struct{ Index, Of int }

// ErrShard is wrapped by ParseShard's errors.
var ErrShard = errors.New("not a shard")

// ParseShard parses "i/n", with i from 1 to n.
func ParseShard(text string) (Shard, error) {
	index, count, found := strings.Cut(text, "/")
	i, err1 := strconv.Atoi(index)
	n, err2 := strconv.Atoi(count)
	if found && err1 == nil && err2 == nil && i == 0 && n > 0 {
		return Shard{}, fmt.Errorf("%w: %q: shards count from 1: in a job array from 0, pass its index + 1, or shard %d/%d "+
			"is left out", ErrShard, text, n, n)
	}
	if !found || err1 != nil || err2 != nil || i < 1 || i > n {
		return Shard{}, fmt.Errorf("%w: %q: it has to be i/n, with i from 1 to n", ErrShard, text)
	}
	return Shard{i, n}, nil
}

// String returns the form that ParseShard reads: "2/3".
func (s Shard) String() string { return fmt.Sprintf("%d/%d", s.Index, s.Of) }

// Part returns every n-th element, beginning with the i-th, for shard i/n: shard 2/3 gets the 2nd, 5th and 8th.
func Part[T any](s Shard, all []T) []T {
	var part []T
	for i := s.Index - 1; i < len(all); i += s.Of {
		part = append(part, all[i])
	}
	return part
}
