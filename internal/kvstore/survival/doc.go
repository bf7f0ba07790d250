// Package survival has only tests: that the data survives. A small transformer
// with random weights, and one whose weights are built by hand so that its
// answer is known beforehand, run through schedulers, block managers, kvstore
// and attention in random traffic. Every logit must equal, to the bit, what the
// same model says in one pass over contiguous memory. So a block table is judged
// by the tokens that come out, not by bookkeeping.
//
// Schedulers under test are vLLM V1's, V0's, the paper's and Orca's. Rules of
// them may not live here.
package survival
