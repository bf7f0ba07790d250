// Package engine serves a model in real time. It combines vLLM V1's scheduler, a kvstore, a model and samplers. Submit
// adds a request, and a Stream returns its answers. Package openai serves an engine over HTTP.
//
// A loop runs one step after the other. A step schedules tokens of many requests, copies shared blocks before they
// are written, computes the batch and samples. It then reports the sampled tokens to the scheduler and the streams.
// While the workers compute a step, the loop delivers the tokens of the previous step and schedules the next one.
//
// An answer depends only on its request, not on other requests, prefix hits, chunks, preemption or the number of
// workers.
//
// Where to extend the engine:
//   - A step sends each worker a modelInput (workers.go), which buildBatch fills (batch.go). Worker 0 returns a
//     modelOutput. A ModelRunner (modelrunner.go) computes on a CPU or on another device.
//   - Logits are changed only by the adjustments in package sampling, before a token is chosen. They read the request's
//     Params and the sampling.State that sequence.state fills for each token.
//   - deliverToken (update.go) sends the text of an answer as an Event. sequence.outputAfter decides the text and
//     whether the answer ends. Package openai writes events as JSON in answer.whole and answer.chunks.
package engine
