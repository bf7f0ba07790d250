// Package engine serves a model in real time: one loop over vLLM V1's scheduler,
// the blocks of a kvstore, a model and samplers. A step schedules tokens of many
// requests, copies shared blocks before they are written, computes the batch, samples, and
// reports the sampled tokens to the scheduler. Each step sends one message to the workers,
// which divide the model among them. While they compute it, the tokens of the previous step
// are delivered and the next step is scheduled.
//
// The answer to a request depends on the request alone: not on what runs beside
// it, on prefix hits, chunks or preemption, nor on the number of workers.
//
// Submit adds a request, and a Stream returns its answer. HTTP is in package openai.
package engine
