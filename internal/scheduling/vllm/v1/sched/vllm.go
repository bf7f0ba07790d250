package sched

// differences are the differences from vLLM. With Config.AsVLLM all of them are false. vllm/v1/RULES.md has the
// reasons (§17, and "Different" in §19 to §21).
type differences struct {
	keys     bool // blocks that were scheduled and not computed cannot be hit
	victims  bool // of equal priority and arrival, the one that would be admitted last is preempted; vLLM takes the first of the list
	steps    bool // a step is empty only if nothing can run before another call
	drafts   bool // only running requests take drafts
	deferred bool // a request waits for blocks that steps in flight keep; vLLM preempts other requests
	loads    bool // blocks of a failed load cannot be read; requests do not wait for each other's loaded blocks
	encoder  bool // only computed outputs can be read; requests do not wait for each other's outputs
	adapters bool // all running adapters count for MaxLoRAs; vLLM counts the adapters of the step
	zeroing  bool // only blocks of the step's rows are zeroed
	copies   bool // a request that loses its row has no copies in the step
	hits     bool // kvcache.Config.Exact and CopyWritten
}
