package main

/*
#include "translate.h"
*/
import "C"

import (
	"runtime"
	"runtime/debug"
)

// watched is whether Valgrind runs the process. Then garbage stays: Memcheck's
// search for leaks fails on memory that the collector has used again, because
// the runtime does not tell it of every object that is gone.
var watched = C.llm_watched() != 0

func init() {
	if watched {
		const off = -1
		debug.SetGCPercent(off)
	}
}

// collect is for garbage so large that it must not wait.
func collect() {
	if !watched {
		runtime.GC()
	}
}
