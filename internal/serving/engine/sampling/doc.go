// Package sampling chooses tokens from logits: temperature, top-k, top-p, min-p, penalties, logit bias and log
// probabilities.
//
// The random number for output token i of an answer depends only on the seed and i. So an answer with a seed does not
// depend on other requests, preemption or speculation. Weights are exponentials whose bits are the same on each
// processor, and their sums are sums of integers. So a GPU (cuda/kernels) chooses the same token from the same logits.
package sampling
