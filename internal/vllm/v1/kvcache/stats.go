package kvcache

// Stats counts the lookups of requests that were admitted (vllm/v1/RULES.md §12), in
// tokens where it is not requests. Requests that had been preempted, or
// admitted before, count apart; those that may not read the cache do not count.
type Stats struct {
	Reset                               bool // the cache was reset
	Requests, Queries, Hits             int
	Preempted, PreemptedQueries, Rehits int
}

// Record counts an admitted request and the tokens it hit. One whose admission was undone counts
// as a preempted one when it is admitted again.
func (c *Cache) Record(r *Request, hit int) {
	again := r.Readmitted()
	r.recorded = true
	if !c.config.EnablePrefixCaching || r.noRead {
		return
	}
	s := &c.stats
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

// Readmitted reports whether r was admitted before: it was preempted, or its admission was undone.
func (r *Request) Readmitted() bool { return r.preemptions > 0 || r.recorded }

// TakeStats returns the counts since the last call.
func (c *Cache) TakeStats() Stats {
	s := c.stats
	c.stats = Stats{}
	return s
}

// Common appends, for each group, how many blocks at the beginning of r's table
// all requests with blocks share; 0 for groups without full attention (vllm-v1
// §11). As in vLLM, asking makes r an owner of a table.
func (c *Cache) NumCommonPrefixBlocks(dst []int32, r *Request) []int32 {
	for i := range c.groups {
		g, t := &c.groups[i], &r.tables[i]
		n := int32(0)
		if g.Kind == Full && c.config.EnablePrefixCaching {
			c.own(g, t)
			for _, id := range t.ids {
				if c.pool.Count(id) != int32(g.owners) {
					break
				}
				n++
			}
		}
		dst = append(dst, n)
	}
	return dst
}
