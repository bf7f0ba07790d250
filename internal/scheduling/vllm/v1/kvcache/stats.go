package kvcache

// Stats counts the lookups of admitted requests (vllm/v1/RULES.md §12), in tokens unless it says
// requests. Requests that were preempted or admitted before count apart; those that may not read
// the cache do not count.
type Stats struct {
	Reset                               bool // the cache was reset
	Requests, Queries, Hits             int
	Preempted, PreemptedQueries, Rehits int
}

// Readmitted reports whether r was admitted before and then preempted, or its admission undone.
func (r *Request) Readmitted() bool { return r.NumPreemptions > 0 || r.recorded }

// record counts an admitted request and the tokens it hit. One whose admission was undone counts
// as a preempted one when it is admitted again.
func (c *Cache) record(r *Request, hit int) {
	again := r.Readmitted()
	r.recorded = true
	if !c.Config.EnablePrefixCaching || r.noRead {
		return
	}
	s := &c.Stats
	if again {
		s.Preempted++
		s.PreemptedQueries += r.NumTokens()
		s.Rehits += hit
		return
	}
	s.Requests++
	s.Queries += r.NumTokens()
	s.Hits += hit
}
