// Package survival has only tests: keys and values survive whatever schedulers do with
// their blocks. Two small transformers run through schedulers, block managers, kvstore
// and attention with random requests: one with random weights, and one with weights
// built by hand, whose answers are known in advance. Every logit must have the same
// bits as in one pass of the same model over contiguous memory. So block tables are checked
// by what is computed from them.
//
// The schedulers are those of vLLM V1, V0, the paper and Orca. None of their rules may
// live here.
package survival
