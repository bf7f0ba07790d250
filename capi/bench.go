//go:build bench

package main

/*
#include <stdint.h>
#include "translate.h"
*/
import "C"

import "runtime"

// llm_bench_empty does nothing. It has the signature of append_kv, to measure what a call from C into Go costs.
//
//export llm_bench_empty
func llm_bench_empty(e *C.LLMEngine, id, data C.int) C.int { return 0 }

// llm_bench_mallocs returns the number of allocations on the Go heap since the program started.
//
//export llm_bench_mallocs
func llm_bench_mallocs() C.uint64_t {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return C.uint64_t(m.Mallocs)
}
