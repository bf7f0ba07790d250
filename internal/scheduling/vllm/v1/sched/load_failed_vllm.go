package sched

// This file has vLLM's behaviour after failed loads (Config.AsVLLM; vllm/v1/RULES.md §19). The main differences from
// load_failed.go are:
//
//   - The failed blocks of running requests keep their keys.
//   - If the sampled tokens of a row are ignored, the blocks that the row has written are still treated as valid.
//   - If running requests share a failed block, the first one computes it again, and the others continue.

// findVoidRowsAsVLLM finds the rows that read missing blocks, and the later rows of the same requests. If a request was
// preempted after its row was scheduled, and still waits, vLLM does not treat this row as void.
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

// notInFlightAsVLLM returns the number of computed tokens of r as vLLM counts them: r.kv.NumComputedTokens minus the
// tokens of e, but at least 0. e is the row of r in the oldest step in flight, or nil. If e is stale,
// r.kv.NumComputedTokens does not include the tokens of e, but vLLM subtracts them too. The result can then be too
// small.
func (c *connector) notInFlightAsVLLM(r *request, e *entry) int {
	if e == nil {
		return r.kv.NumComputedTokens
	}
	return max(r.kv.NumComputedTokens-int(e.tokens), 0)
}

func (c *connector) failAsVLLM(f *failure) {
	for i := range f.setbacks {
		if a := &f.setbacks[i]; a.r.status == running {
			c.failRunningAsVLLM(a)
		} else {
			c.cutLoad(a.r, a.firstFailed)
		}
	}
}

func (c *connector) failRunningAsVLLM(a *setback) {
	e := c.oldestEntry(a.r)
	computed := c.notInFlightAsVLLM(a.r, e)
	if a.firstToCompute >= 0 {
		computed = a.firstToCompute * c.s.blockSizes[0]
	}
	if e != nil {
		c.s.void(e)
	}
	a.r.kv.NumComputedTokens = computed
	c.s.restart(a.r)
}
