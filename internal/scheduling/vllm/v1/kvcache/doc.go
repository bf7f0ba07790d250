// Package kvcache is vLLM V1's KV-cache manager. It maps the tokens of requests to blocks of a pool, with one block
// table for each group of layers. It also finds the longest cached prefix of a request (vllm/v1/RULES.md §5 to §11).
//
// Groups of layers differ in their attention (full, sliding window, chunked local, Mamba) and in their block sizes, so
// the lengths of their hits must be reconciled. Blocks outside a window are freed early; the null block replaces them
// in the table.
//
// Two operations are not in V1. Fork shares all blocks of a request; the first write to a shared, partly filled block
// adds a Copy. Rollback frees the blocks of rejected drafts.
//
// An allocation is planned as a whole before anything changes. A failed allocation frees the blocks outside windows,
// and changes nothing else (vllm/v1/RULES.md §6, step 5).
//
// The queues of requests are in package sched. It decides which requests run.
package kvcache
