// Package sched is vLLM V1's scheduler: in each step it decides how many tokens
// of which requests the model computes, under a budget of tokens, a limit of
// running requests and the blocks of the cache (vllm/v1/RULES.md §14).
//
// A request only has computed tokens and tokens to compute, drafts included;
// prefill and decode are the same thing. Running requests come first. When
// blocks run out, the last one (FCFS) or the least important one (priority)
// loses all its blocks and waits again; its tokens stay, so it hits its former
// blocks if they survive. Then waiting requests are admitted from the head of
// the queue, until one does not fit.
//
// A step goes: Schedule, run the model on what Step says, Update with what it
// sampled, SetDrafts. Several steps can be in flight, between Schedule and
// Update, for pipelines and for asynchronous scheduling (vllm/v1/RULES.md §15); if
// they fail, StepFailed takes them back. Nothing can be hit that was not computed,
// unless Config.AsVLLM is set (RULES.md §17).
//
// A Scheduler is safe for concurrent use: each method
// is atomic, under one lock. Add, Abort, Fork and the others may be called
// between Schedule and Update, unless their comment says otherwise.
//
// Package kvcache decides which blocks a request gets. Nothing here runs a model.
package sched
