package main

// These directives save an allocation and a stack check for each call. They are correct for two reasons. The pointers
// passed to C point to C memory or to the library's static data. C neither keeps the pointers nor calls Go.

/*
#cgo noescape llm_heap_get
#cgo nocallback llm_heap_get
#cgo noescape llm_heap_put
#cgo nocallback llm_heap_put
#include "translate.h"
*/
import "C"

import (
	"unsafe"

	"llmmemory/internal/homework/course"
)

// heap is course.Memory over C's malloc, calloc and free.
type heap struct{}

func (heap) Get(chunks []course.Chunk) bool {
	return C.llm_heap_get((*C.struct_llm_chunk)(unsafe.Pointer(&chunks[0])), C.size_t(len(chunks))) != 0
}

func (heap) Put(first, single unsafe.Pointer) { C.llm_heap_put(first, single) }
