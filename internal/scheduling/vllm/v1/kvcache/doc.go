// Package kvcache is vLLM V1's KV-cache manager: it maps the tokens of requests
// to blocks of a pool, one block table for each group of layers, and finds the
// longest prefix that is cached already (vllm/v1/RULES.md §5 to §11).
//
// Groups of layers differ in what they attend to (full, sliding window, chunked
// local, Mamba) and in their block sizes, so a hit must be reconciled among
// them, and blocks outside a window go back to the pool early; in a table the
// null block stands for them.
//
// The package also has what V1 dropped: Fork shares all blocks of a request, and the first write to
// a shared block that is partly filled adds a pair of blocks to copy; Rollback frees the blocks of
// rejected drafts.
//
// A Cache is for one goroutine; what only reads it gets its Config and its Pool. An allocation is planned as a whole before
// anything changes, so a call that is refused leaves everything as it was, except that blocks
// outside a window stay freed (vllm/v1/RULES.md §6, step 5).
//
// Queues of requests and the choice of which to run belong to sched.
package kvcache
