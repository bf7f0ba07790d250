package main

/*
#include "translate.h"
*/
import "C"

import (
	_ "unsafe" // for go:linkname

	"llmmemory/internal/homework/course"
)

// llm_start is called once, by the constructor in guest.c, before the program's
// main. If tidy is set, the library keeps nothing that looks like a pointer to the
// host's memory, because a leak check would take it for one.
//
//export llm_start
func llm_start(strict, watched, tidy C.int) {
	const off = -1
	setGCPercent(off) // no call allocates on the Go heap
	library.Memory = heap{}
	library.Strict = strict != 0 || watched != 0
	library.Tidy = tidy != 0
}

// llm_rest is called before a fork. It does nothing: entering and leaving Go is what
// the caller needs.
//
//export llm_rest
func llm_rest() {}

// llm_deepen is called before a thread's first call (calls.c).
//
//export llm_deepen
func llm_deepen() { course.Deepen() }

// setGCPercent is debug.SetGCPercent's half in the runtime. The other half,
// package runtime/debug, brings fmt, os and internal/godebug, whose init grows
// the main goroutine's stack; Memcheck reports that in every program that links
// the library.
//
//go:linkname setGCPercent runtime/debug.setGCPercent
func setGCPercent(percent int32) (before int32)
