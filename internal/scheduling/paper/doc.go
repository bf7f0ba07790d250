// Package paper has the systems that the PagedAttention paper (SOSP '23) compares: the paper's
// block manager and scheduler, as in the authors' artifact, and the systems it measures
// against, as the authors rebuilt them: Orca, which reserves
// a power of two of contiguous blocks for each sequence from a buddy allocator
// and knows the output's length exactly (Oracle), up to a power of two (Pow2) or
// not at all (Max); and FasterTransformer, whose batches run until their longest
// answer is complete (vllm/v0/RULES.md §9 to §11, simulation/PAPER.md §1).
//
// A request is a group of sequences with one prompt. The paper's system shares the
// prompt among them; Orca copies it for each. Each device counts its blocks
// from 0, and hands out the block that became free last, the highest first.
//
// All of them have the same scheduler over different memory managers. Where the artifact
// waits for ever for a request that can never fit, this package drops it and reports that.
// Not safe for concurrent use.
package paper
