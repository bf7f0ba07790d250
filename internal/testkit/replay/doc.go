// Package replay repeats recorded operations of vLLM V1's block pool, KV-cache manager and scheduler with the block
// pool, KV-cache manager and scheduler of this project. It compares every field of every result: block ids, counts, the
// order of the free queue, events. The recordings are in testdata/traces/v1 and v1-more; format.md describes them.
//
// It also replays recordings of vLLM V0, of the paper's system and of Orca (testdata/traces/v0, described in v0.md).
package replay
