// Package sampling chooses tokens from logits: temperature, top-k, top-p, min-p,
// penalties, logit bias, and the logarithms of probabilities that users ask for.
//
// The random number for output token i of a request is a function of its seed and
// i alone. So a request with a seed has the same answer whatever ran beside it,
// with or without preemption and speculation.
package sampling
