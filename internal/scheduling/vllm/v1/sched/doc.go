// Package sched is vLLM V1's scheduler: in each step it decides how many tokens
// of which requests the model computes, under a budget of tokens, a limit of
// running requests and the blocks of the cache (vllm/v1/RULES.md §14).
//
// A request only has computed tokens and tokens to compute, drafts included; there is no difference
// between prefill and decode. Running requests come first. When blocks run out, the last one (FCFS)
// or the least important one (priority) loses all its blocks and waits again; its tokens stay, so
// it hits its former blocks if they survive. Then waiting requests are admitted from the head of
// the queue, until one does not fit.
//
// In each step the host calls Schedule, runs the model on the rows of Step, and calls Update with
// what it sampled, and SetDrafts. Several steps can be in flight, between Schedule and Update, for
// pipelines and for asynchronous scheduling (vllm/v1/RULES.md §15); if they fail, StepFailed takes
// them back. Blocks that were not computed cannot be hit, unless Config.AsVLLM is set (RULES.md
// §17; vllm.go lists all differences). The extensions (extension.go) for loads from a connector, Mamba states,
// encoder outputs, adapters and zeroing change a step.
//
// A Scheduler is safe for concurrent use: each method
// is atomic, under one lock. Add, Abort, Fork and the others may be called
// between Schedule and Update, unless their comment says otherwise.
//
// Package kvcache decides which blocks a request gets. Nothing here runs a model.
package sched
