package sched

// This file has vLLM's behaviour after failed loads (Config.AsVLLM; vllm/v1/RULES.md §19). Blocks keep their keys,
// blocks that void rows write count as valid, and if requests share a failed block, only one of them computes it
// again.

// findVoidRowsAsVLLM finds the rows that read missing blocks. A row of a request that was preempted since then is not
// void in vLLM, and its tokens are delivered.
func (c *connector) findVoidRowsAsVLLM(f *failure, out *FailedLoad) {
	c.findVoidRunning(f, c.notInFlightAsVLLM)
	for k := range c.s.flight.n {
		b := c.s.flight.batches[k]
		for i := range b.rows {
			e := &b.rows[i]
			if e.id == voided {
				continue
			}
			if reads, _ := b.touched.row(i); e.admitted {
				f.void[e.id] = f.anyBad(reads)
			}
			if f.void[e.id] && (e.r.id != e.id || e.r.status == running) {
				out.Void = append(out.Void, VoidRow{k, i})
			}
		}
	}
}

// notInFlightAsVLLM returns the computed tokens of r without those of e, its row in the oldest step, even if the row
// is stale.
func (c *connector) notInFlightAsVLLM(r *request, e *entry) int {
	if e == nil {
		return r.kv.NumComputedTokens
	}
	return max(r.kv.NumComputedTokens-int(e.tokens), 0)
}

func (c *connector) failAsVLLM(f *failure) {
	for i := range f.again {
		if a := &f.again[i]; a.r.status == running {
			c.failRunningAsVLLM(a)
		} else {
			c.cutLoad(a.r, a.at)
		}
	}
}

func (c *connector) failRunningAsVLLM(a *setback) {
	e := c.oldestEntry(a.r)
	computed := c.notInFlightAsVLLM(a.r, e)
	if a.first >= 0 {
		computed = a.first * c.s.blockSizes[0]
	}
	if e != nil {
		c.s.void(e)
	}
	a.r.kv.NumComputedTokens = computed
	c.s.restart(a.r)
}
