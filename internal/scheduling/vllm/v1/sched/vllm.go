package sched

// The differences from vLLM. Config.AsVLLM switches all of them off; vllm/v1/RULES.md has the reasons
// (§17, and "Different" in §19 to §21).
type differences struct {
	keys     bool // what was scheduled and then not computed loses its keys, so nothing can hit it
	victims  bool // of equally important requests the one that came last is preempted; vLLM takes the first of the list
	steps    bool // a step is empty only if nothing can run before another call
	drafts   bool // only running requests take drafts
	deferred bool // a request waits for blocks that steps in flight keep, in place of preempting others
	loads    bool // what a failed load left out cannot be read, and loaded requests do not wait for each other's blocks
	encoder  bool // only computed outputs can be read, and requests do not wait for each other's
	adapters bool // all running adapters count for MaxLoRAs; vLLM counts those of the step
	zeroing  bool // only blocks of the step's rows are zeroed
	copies   bool // a request that is taken out of the step has no copies in it
	hits     bool // kvcache.Config.Exact and CopyWritten
}

func differencesFrom(c *Config) differences {
	d := !c.AsVLLM
	return differences{d, d, d, d, d, d, d, d, d, d, d}
}
