package main

/*
#include "translate.h"
*/
import "C"

import (
	_ "unsafe" // for go:linkname

	"llmmemory/internal/homework/course"
)

// llm_start is called once, by the constructor in guest.c, before the program's main or the return of dlopen. strict and
// tidy set the fields of course.Library. watched means that the program runs under Memcheck, and also sets Strict.
//
//export llm_start
func llm_start(strict, watched, tidy C.int) {
	const off = -1
	setGCPercent(off) // no call allocates on the Go heap
	library.Memory = heap{}
	library.Strict = strict != 0 || watched != 0
	library.Tidy = tidy != 0
}

// llm_rest does nothing. A thread that prepares a fork calls it only to enter and leave Go.
//
//export llm_rest
func llm_rest() {}

// llm_deepen is called before the first other call of each thread (calls.c).
//
//export llm_deepen
func llm_deepen() { course.Deepen() }

// setGCPercent calls a function of package runtime, which debug.SetGCPercent calls, too. Package runtime/debug itself
// cannot be used, because it imports fmt, os and, through package time, internal/godebug. The initialization of these
// packages grows the main goroutine's stack. Memcheck reports this in every program linked with the library.
//
//go:linkname setGCPercent runtime/debug.setGCPercent
func setGCPercent(percent int32) (before int32)
