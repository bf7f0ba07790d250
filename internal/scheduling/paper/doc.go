// Package paper has the systems compared in the PagedAttention paper (SOSP '23; vllm/v0/RULES.md §9 to §11,
// simulation/PAPER.md §1):
//
//   - the paper's own block manager and scheduler, as in the authors' artifact;
//   - Orca as the authors rebuilt it. Orca reserves contiguous blocks, a power of two, for each
//     sequence from a buddy allocator. It knows the length of the output exactly (Oracle), up to a
//     power of two (Pow2), or not at all (Max);
//   - FasterTransformer, whose batches run until their longest answer is complete.
//
// A request is a group of sequences with one prompt. The paper's system shares the prompt's blocks among these
// sequences; in Orca each sequence has its own. Block ids count from 0 on each device. A new block of the paper's
// system is the block that became free last; blocks that were never used are taken from the highest id down.
//
// The paper's system and Orca have the same scheduler over different memory managers. If a request can never fit, the
// artifact waits for ever. This package drops such a request and reports it. Nothing here is safe for concurrent use.
package paper
