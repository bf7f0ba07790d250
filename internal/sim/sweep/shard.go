package sweep

import (
	"cmp"
	"slices"

	"llmmemory/internal/jobs"
	"llmmemory/internal/sim"
)

// cost returns about how long a job takes, in no unit. A system that caches prefixes
// computes hashes of blocks (internal/sim/README.md, speed).
func (j Job) cost() int64 {
	n := int64(j.Requests) + 1
	if kind, err := sim.Lookup(j.System); err == nil && kind.CachesPrefixes {
		n *= 4
	}
	return n
}

// costly returns the indices of the jobs, the longest first: begun last, one of them
// would keep a single processor busy while the others wait.
func (s *Sweep) costly() []int {
	all := make([]int, len(s.Jobs))
	for i := range all {
		all[i] = i
	}
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(s.Jobs[b].cost(), s.Jobs[a].cost()) })
	return all
}

// part returns the indices of a shard's jobs, the longest first. A shard has at most one of the longest more to do than
// another one.
func (s *Sweep) part(shard jobs.Shard) []int { return jobs.Part(shard, s.costly()) }
