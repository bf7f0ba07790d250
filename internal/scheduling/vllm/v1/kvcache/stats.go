package kvcache

// Stats counts the lookups of admitted requests (vllm/v1/RULES.md §12). Requests and Preempted are numbers of
// admissions; Queries, Hits, PreemptedQueries and Rehits are numbers of tokens. Requests with Spec.NoRead do not count.
type Stats struct {
	Reset                               bool // the cache was reset
	Requests, Queries, Hits             int
	Preempted, PreemptedQueries, Rehits int // of requests that are admitted again
}

// Readmitted reports whether r has been admitted before.
func (r *Request) Readmitted() bool { return r.NumPreemptions > 0 || r.recorded }

func (c *Cache) record(r *Request, hit int) {
	readmitted := r.Readmitted()
	r.recorded = true
	if !c.Config.EnablePrefixCaching || r.noRead {
		return
	}
	s := &c.Stats
	if readmitted {
		s.Preempted++
		s.PreemptedQueries += r.NumTokens()
		s.Rehits += hit
		return
	}
	s.Requests++
	s.Queries += r.NumTokens()
	s.Hits += hit
}
