// Command capi is libllm_memory: the functions of llm_memory.h and
// llm_memory_ext.h over package course. It is built as a C shared library and
// as a C archive (see the Makefile), never as a program.
//
// Nothing but translation lives here: pointer in, call, result out. What it
// takes to be a good guest in a C process is in guest.c.
package main

/*
#cgo CFLAGS: -std=gnu11 -Wall -Wextra -I${SRCDIR}/.. -I${SRCDIR}
#include "translate.h"
*/
import "C"

import (
	"unsafe"

	"llmmemory/internal/course"
)

var library course.Library

func main() {}

//export llm_init
func llm_init(pool unsafe.Pointer, size C.size_t) *C.LLMEngine {
	e, _ := library.Init(pool, uintptr(size))
	return (*C.LLMEngine)(unsafe.Pointer(e))
}

//export create_sequence
func create_sequence(e *C.LLMEngine, id, length C.int) *C.Sequence {
	s, _ := library.Create(engine(e), int32(id), int32(length))
	return (*C.Sequence)(unsafe.Pointer(s))
}

//export fork_sequence
func fork_sequence(e *C.LLMEngine, parent, id C.int) *C.Sequence {
	s, _ := library.Fork(engine(e), int32(parent), int32(id))
	return (*C.Sequence)(unsafe.Pointer(s))
}

//export append_kv
func append_kv(e *C.LLMEngine, id, data C.int) C.int {
	return status(library.Append(engine(e), int32(id), int32(data)))
}

//export free_sequence
func free_sequence(e *C.LLMEngine, id C.int) C.int {
	return status(library.Free(engine(e), int32(id)))
}

//export llm_destroy
func llm_destroy(e *C.LLMEngine) C.int {
	return status(library.Destroy(engine(e)))
}

//export append_kv_batch
func append_kv_batch(e *C.LLMEngine, seqs *C.llm_sequence_in, data *C.llm_record_in, n C.int) C.int {
	return status(library.AppendBatch(engine(e), (**course.Sequence)(unsafe.Pointer(seqs)),
		(*int32)(unsafe.Pointer(data)), int32(n)))
}

//export append_kv_run
func append_kv_run(e *C.LLMEngine, s *C.Sequence, data *C.llm_record_in, n C.int) C.int {
	return status(library.AppendRun(engine(e), (*course.Sequence)(unsafe.Pointer(s)),
		(*int32)(unsafe.Pointer(data)), int32(n)))
}

func engine(e *C.LLMEngine) *course.Engine { return (*course.Engine)(unsafe.Pointer(e)) }

func status(err error) C.int {
	if err != nil {
		return -1
	}
	return 0
}
