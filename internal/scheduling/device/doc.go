// Package device is the pool of physical blocks of one device as vLLM V0 and the
// system of the PagedAttention paper keep it: reference counts and a stack of
// free blocks. It also holds the small parts that their block managers share: the
// recycled arrays of block tables and the watermark.
//
// Package block has the rules of counting (share, release, copy-on-write,
// conservation). The pool of vLLM V1, with its queue of free blocks and its prefix
// cache, is package llmmemory/internal/scheduling/vllm/v1/pool.
package device
