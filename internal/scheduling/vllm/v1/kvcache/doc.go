// Package kvcache is vLLM V1's KV-cache manager: it maps the tokens of requests to blocks of a pool, with one block
// table for each group of layers, and finds the longest prefix that is cached (vllm/v1/RULES.md §5 to §11).
//
// Groups of layers differ in the tokens that they attend to (full, sliding window, chunked local, Mamba) and in their
// block sizes, so the lengths of their hits must be reconciled. Blocks outside a window are freed early; the null
// block replaces them in the table.
//
// Two operations are not in V1: Fork shares all blocks of a request, and the first write to a shared block that is
// partly filled adds a Copy; Rollback frees the blocks of rejected drafts.
//
// An allocation is planned as a whole before anything changes, so an allocation that fails changes nothing, except
// that blocks outside windows are free (vllm/v1/RULES.md §6, step 5).
//
// The queues of requests are in package sched, which decides which requests run.
package kvcache
