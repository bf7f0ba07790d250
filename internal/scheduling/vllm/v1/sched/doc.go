// Package sched is vLLM V1's scheduler. In each step it decides how many tokens of which requests the model computes.
// It keeps within a budget of tokens, a limit of running requests and the blocks of the cache (vllm/v1/RULES.md §14).
//
// A request has computed tokens and tokens to compute, including drafts; there is no difference between prefill and
// decode. Running requests are scheduled first. When too few blocks are free, the request admitted last (FCFS) or the
// least important one (priority) is preempted. It loses all its blocks and waits again; it can hit its own blocks later.
// Then, if all running requests got their blocks, waiting requests are admitted from the head of the queue, until a
// request does not fit.
//
// In each step the host calls Schedule, runs the model on the rows of Step, and calls Update with the sampled tokens,
// and SetDrafts. Several steps can be in flight, between Schedule and Update, for pipelines and for asynchronous
// scheduling (vllm/v1/RULES.md §15); StepFailed undoes them. Blocks that were not computed cannot be hit, unless
// Config.AsVLLM is true (RULES.md §17; vllm.go lists all differences that AsVLLM turns off). Extensions (extension.go)
// change a step for loads from a connector, Mamba states, encoder outputs, adapters and zeroing.
//
// A Scheduler is safe for concurrent use: each method is atomic. Unless their comments say otherwise, methods may be
// called between Schedule and Update.
//
// The blocks of a request are chosen by package kvcache.
package sched
