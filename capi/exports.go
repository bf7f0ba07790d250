// Command capi is libllm_memory: the functions of llm_memory.h and llm_memory_ext.h, which call package course. It is
// built as a C shared library and as a C archive (see the Makefile), never as a program.
//
// The Go files only translate arguments and results. guest.c has the code that keeps the Go runtime from disturbing
// the C process.
package main

/*
#cgo noescape llm_refused
#cgo nocallback llm_refused
#cgo CFLAGS: -std=gnu11 -Wall -Wextra -I.. -I.
#include "translate.h"
*/
import "C"

import (
	"slices"
	"unsafe"

	"llmmemory/internal/homework/course"
)

var library course.Library

func main() {}

//export llm_init
func llm_init(pool unsafe.Pointer, size C.size_t) *C.LLMEngine {
	e, err := library.Init(pool, uintptr(size))
	if err != nil {
		refuse(err, C.LLM_INIT, pool, nil, C.long(size), 0)
	}
	return (*C.LLMEngine)(unsafe.Pointer(e))
}

//export create_sequence
func create_sequence(e *C.LLMEngine, id, length C.int) *C.Sequence {
	s, err := library.Create(engine(e), int32(id), int32(length))
	if err != nil {
		refuse(err, C.LLM_CREATE, unsafe.Pointer(e), nil, C.long(id), C.long(length))
	}
	return (*C.Sequence)(unsafe.Pointer(s))
}

//export fork_sequence
func fork_sequence(e *C.LLMEngine, parent, id C.int) *C.Sequence {
	s, err := library.Fork(engine(e), int32(parent), int32(id))
	if err != nil {
		refuse(err, C.LLM_FORK, unsafe.Pointer(e), nil, C.long(parent), C.long(id))
	}
	return (*C.Sequence)(unsafe.Pointer(s))
}

//export append_kv
func append_kv(e *C.LLMEngine, id, data C.int) C.int {
	if err := library.Append(engine(e), int32(id), int32(data)); err != nil {
		return refuse(err, C.LLM_APPEND, unsafe.Pointer(e), nil, C.long(id), C.long(data))
	}
	return 0
}

//export free_sequence
func free_sequence(e *C.LLMEngine, id C.int) C.int {
	if err := library.Free(engine(e), int32(id)); err != nil {
		return refuse(err, C.LLM_FREE, unsafe.Pointer(e), nil, C.long(id), 0)
	}
	return 0
}

//export llm_destroy
func llm_destroy(e *C.LLMEngine) C.int {
	if err := library.Destroy(engine(e)); err != nil {
		return refuse(err, C.LLM_DESTROY, unsafe.Pointer(e), nil, 0, 0)
	}
	return 0
}

//export append_kv_batch
func append_kv_batch(e *C.LLMEngine, seqs *C.llm_sequence_in, data *C.llm_record_in, n C.int) C.int {
	err := library.AppendBatch(engine(e), (**course.Sequence)(unsafe.Pointer(seqs)),
		(*int32)(unsafe.Pointer(data)), int32(n))
	if err != nil {
		return refuse(err, C.LLM_BATCH, unsafe.Pointer(e), unsafe.Pointer(seqs), C.long(n), 0)
	}
	return 0
}

//export append_kv_run
func append_kv_run(e *C.LLMEngine, s *C.Sequence, data *C.llm_record_in, n C.int) C.int {
	err := library.AppendRun(engine(e), (*course.Sequence)(unsafe.Pointer(s)),
		(*int32)(unsafe.Pointer(data)), int32(n))
	if err != nil {
		return refuse(err, C.LLM_RUN, unsafe.Pointer(e), unsafe.Pointer(s), C.long(n), 0)
	}
	return 0
}

func engine(e *C.LLMEngine) *course.Engine { return (*course.Engine)(unsafe.Pointer(e)) }

// refuse records why a call was refused, with the call's arguments, and returns -1.
func refuse(err error, function C.int, first, second unsafe.Pointer, a, b C.long) C.int {
	C.llm_refused(function, C.int(max(slices.Index(reasons[:], err), 0)), first, second, a, b)
	return -1
}

// reasons maps codes in C to errors. An error that is not here counts as LLM_CORRUPT, code 0.
var reasons = [...]error{
	C.LLM_CORRUPT:     course.ErrCorrupt,
	C.LLM_NULL_ENGINE: course.ErrNilEngine,
	C.LLM_POOL:        course.ErrPool,
	C.LLM_LENGTH:      course.ErrLength,
	C.LLM_EXISTS:      course.ErrExists,
	C.LLM_NOT_FOUND:   course.ErrNotFound,
	C.LLM_CAPACITY:    course.ErrCapacity,
	C.LLM_NO_BLOCKS:   course.ErrNoBlocks,
	C.LLM_NO_MEMORY:   course.ErrNoMemory,
	C.LLM_ARGUMENT:    course.ErrArgument,
}
