// Package encodercache decides which outputs of the encoder (embeddings of images,
// audio and the like) a worker keeps: vLLM's EncoderCacheManager
// (vllm/v1/RULES.md §20).
//
// An output is identified by the hash of its input, and its size is a number of embeddings. A
// request has references to the outputs that it still reads. When space is needed, the output
// that has been unreferenced longest is evicted, and the next step lists it.
//
// The scheduler decides when an input is encoded. The worker stores the embeddings.
package encodercache
