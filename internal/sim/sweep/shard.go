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

// shards says for each job which of n shards has it, from 1: the longest first,
// each to the shard that has least to do. Costs are whole numbers, so all
// machines come to the same.
func (s *Sweep) shards(n int) []int {
	load := make([]int64, min(n, len(s.Jobs))) // more shards than jobs have nothing to do
	of := make([]int, len(s.Jobs))
	for _, i := range s.costly() {
		least := slices.Index(load, slices.Min(load))
		load[least] += s.Jobs[i].cost()
		of[i] = least + 1
	}
	return of
}

// part returns the indices of a shard's jobs, the longest first.
func (s *Sweep) part(shard jobs.Shard) []int {
	of := s.shards(shard.Of)
	return slices.DeleteFunc(s.costly(), func(i int) bool { return of[i] != shard.Index })
}
