// Package engine serves a model in real time: one loop over vLLM V1's scheduler,
// the blocks of a kvstore, a model and samplers. A step schedules tokens of many
// requests, copies the blocks that a write would change under another sequence, computes
// the batch, samples, and tells the scheduler what came out. What a step computes is one
// message to the workers, which share the model out among them. While they compute it, what the
// step before sampled is delivered and the next step is scheduled.
//
// The answer to a request depends on the request alone: not on what runs beside
// it, on prefix hits, chunks or preemption, nor on the number of workers.
//
// Requests come in by Submit and are answered by a Stream. HTTP and its forms are
// the business of openai.
package engine
