package sched

// What vLLM does when loads have failed (Config.AsVLLM; vllm/v1/RULES.md §19). The blocks keep their keys, what void
// rows write is taken as whole, and one request computes a shared block for all.

// findVoidRowsAsVLLM is findVoidRows where only missing blocks are bad. What is sampled for a request that no longer
// runs is delivered.
func (c *connector) findVoidRowsAsVLLM(f *failure, out *FailedLoad) {
	c.findVoidRunning(f, c.notInFlightAsVLLM)
	for k := range c.s.flight.n {
		b := c.s.flight.at(k)
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

// notInFlightAsVLLM subtracts e, the row in the oldest step, in any case, and treats a negative number as 0.
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

// failRunningAsVLLM makes a running request go on from the first failed block that no other request computes again.
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
