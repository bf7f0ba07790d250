package reproduce

import _ "embed"

// heap is C code that gives a program a heap like the grader's: allocated memory is not zero, and freed memory is
// overwritten and never used again. With AddressSanitizer or Valgrind, the program uses the heap of these tools
// instead.
//
//go:embed c/heap.c
var heap string

// probe is C code at the beginning of main. It finds out whether malloc is the program's own function, which counts
// allocations. Under Valgrind and AddressSanitizer, malloc is a function of the tool.
const probe = `    void *volatile one = malloc(1);
    free(one);
    int counted = allocations > 0;
`

// deathHandler is C code for a function that ends the program with status 1. It is the handler of the signals that end
// a call without a return.
//
//go:embed c/signals.c
var deathHandler string

// watching is C code at the beginning of main. Without AddressSanitizer, it installs the handler in deathHandler for
// SIGSEGV, SIGABRT and the other signals that end a call without a return.
const watching = `#ifndef __SANITIZE_ADDRESS__
    signal(SIGSEGV, died);
    signal(SIGBUS, died);
    signal(SIGFPE, died);
    signal(SIGILL, died);
    signal(SIGABRT, died);
#endif
`
