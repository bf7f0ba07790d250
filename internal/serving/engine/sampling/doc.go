// Package sampling chooses tokens from logits: temperature, top-k, top-p, min-p, penalties, logit bias and log
// probabilities.
//
// The random number for output token i of an answer depends only on the seed and i. So an answer with a seed does not
// depend on other requests, preemption or speculation.
package sampling
