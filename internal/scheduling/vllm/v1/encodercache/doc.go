// Package encodercache decides which outputs of the encoder (embeddings of images,
// audio and the like) a worker keeps: vLLM's EncoderCacheManager
// (vllm/v1/RULES.md §20).
//
// An output is known by the hash of its input, and its size is a number of embeddings. Requests
// refer to the outputs they still read. An output without references stays until its space is
// needed; then the one that has been unreferenced longest is evicted, and the next step lists it.
//
// The scheduler decides when an input is encoded. The worker has the embeddings.
package encodercache
