// Package engine serves a model in real time: one loop over vLLM V1's scheduler,
// the blocks of a kvstore, a model and samplers. A step schedules tokens of many
// requests, copies the blocks that a write would change under another sequence, computes
// the batch, samples, and tells the scheduler what came out. What a step computes is one
// message to the workers, which divide the model among them. While they compute it, the tokens
// of the previous step are delivered and the next step is scheduled.
//
// The answer to a request depends on the request alone: not on what runs beside
// it, on prefix hits, chunks or preemption, nor on the number of workers.
//
// Submit adds a request, and a Stream returns its answer. HTTP is in package openai.
package engine
