package main

/*
#cgo noescape llm_note
#include "translate.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/scheduling/vllm/v1/memplan"
	"llmmemory/internal/scheduling/vllm/v1/sched"
	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
)

// A fault is an error with its code of llm_cache.h.
type fault struct {
	code   C.int
	detail string
}

func (f *fault) Error() string { return f.detail }

func fail(code C.int, format string, args ...any) error {
	return &fault{code, fmt.Sprintf(format, args...)}
}

// status returns the code for err, and stores the text of err for llm_cache_error_detail of this thread.
func status(err error) C.int {
	if err == nil {
		return C.LLM_CACHE_OK
	}
	code, text := codeOf(err), detail(err)
	C.llm_note(code, (*C.char)(unsafe.Pointer(unsafe.StringData(text))), C.size_t(len(text)))
	return code
}

// classes are errors that other errors wrap. Their text says nothing that the error code returned to C does not say.
var classes = []error{
	sched.ErrOrder, sched.ErrRequest, sched.ErrConfig, kvcache.ErrConfig, kvcache.ErrRequest, attention.ErrArgument, attention.ErrOverlap,
}

// detail returns the text of an error. If the text begins with the texts of errors in classes, detail removes them.
func detail(err error) string {
	text := err.Error()
	for i := 0; i < len(classes); i++ {
		if rest, found := strings.CutPrefix(text, classes[i].Error()+": "); found {
			text, i = rest, -1 // one class can wrap another
		}
	}
	return text
}

func codeOf(err error) C.int {
	var f *fault
	switch {
	case errors.As(err, &f):
		return f.code
	case errors.Is(err, sched.ErrOrder):
		return C.LLM_CACHE_E_ORDER
	case errors.Is(err, attention.ErrOverlap):
		return C.LLM_CACHE_E_OVERLAP
	case errors.Is(err, kvstore.ErrRequest):
		return C.LLM_CACHE_E_REQUEST
	case errors.Is(err, attention.ErrArgument):
		return C.LLM_CACHE_E_RANGE
	case errors.Is(err, sched.ErrRequest), errors.Is(err, sched.ErrConfig), errors.Is(err, kvcache.ErrFork),
		errors.Is(err, memplan.ErrLayers):
		return C.LLM_CACHE_E_RANGE
	}
	return C.LLM_CACHE_E_INTERNAL
}

func internal(p any) error { return fail(C.LLM_CACHE_E_INTERNAL, "a mistake in the library: %v", p) }
