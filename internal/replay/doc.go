// Package replay plays recordings of vLLM V1's block pool, KV-cache manager and
// scheduler on this project's own, and compares every field of every result:
// block ids, counts, the order of the free queue, events. The recordings are in
// testdata/traces/v1, format.md beside this file describes them.
//
// It plays those of vLLM V0, of the paper's system and of Orca, too
// (testdata/traces/v0, described in v0.md).
//
// A recording is decoded as a whole before it is played, so playing it again
// without comparing measures the operations alone.
package replay
