package main

/*
#include "translate.h"
*/
import "C"

import "runtime/debug"

// watched reports whether the process runs under Valgrind. Then garbage is not collected, because Memcheck's search
// for leaks fails on memory that the collector has reused.
var watched = C.llm_watched() != 0

func init() {
	if watched {
		const off = -1
		debug.SetGCPercent(off)
	}
}
