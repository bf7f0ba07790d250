package main

/*
#include "translate.h"
*/
import "C"

import _ "unsafe" // for go:linkname

// llm_start is called once, by the constructor in guest.c, before the program's
// main.
//
//export llm_start
func llm_start(strict C.int) {
	const off = -1
	setGCPercent(off) // no call allocates on the Go heap
	library.Memory = heap{}
	library.Strict = strict != 0
}

// setGCPercent is debug.SetGCPercent's half in the runtime. The other half,
// package runtime/debug, brings fmt, os and internal/godebug, whose init grows
// the main goroutine's stack; Memcheck reports that in every program that links
// the library.
//
//go:linkname setGCPercent runtime/debug.setGCPercent
func setGCPercent(percent int32) (before int32)
