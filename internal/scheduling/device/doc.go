// Package device is the pool of physical blocks of one device in vLLM V0 and the
// system of the PagedAttention paper: reference counts and a stack of free blocks. It
// also has what their block managers share: the recycled arrays of block tables and
// the watermark.
//
// The rules of counting are in package block. The pool of vLLM V1, with its queue of
// free blocks and its prefix cache, is package llmmemory/internal/scheduling/vllm/v1/pool.
package device
