package main

/*
#include "translate.h"
*/
import "C"

import "runtime/debug"

// llm_start is called once, by the constructor in guest.c, before the program's
// main. Nothing may be done in a Go init instead: the main goroutine's stack
// would grow there, which Memcheck reports.
//
//export llm_start
func llm_start(strict C.int) {
	debug.SetGCPercent(-1) // no call allocates on the Go heap
	library.Memory = heap{}
	library.Strict = strict != 0
}
