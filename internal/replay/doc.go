// Package replay plays recordings of vLLM V1's block pool, KV-cache manager and
// scheduler on this project's own, and compares every field of every result:
// block ids, counts, the order of the free queue, events (testdata/traces/v1;
// the format is described in trace.md beside this file).
//
// A recording is decoded as a whole before it is played, so playing it again
// without comparing measures the operations alone.
package replay
