package reproduce

import _ "embed"

// heap is C code that gives a program a heap like the grader's: allocated memory is not zero, freed memory is
// filled and not reused. With AddressSanitizer or Valgrind, the program uses their heap instead.
//
//go:embed c/heap.c
var heap string

// probe is C code at the beginning of main. It finds out whether malloc is the program's own, so that the program can
// count allocations.
const probe = `    void *volatile one = malloc(1);
    free(one);
    int counted = allocations > 0;
`

// deaths has the function that ends a program with status 1 when a call does not return.
//
//go:embed c/signals.c
var deaths string

// watching is C code at the beginning of main that installs the signal handlers of deaths.
const watching = `#ifndef __SANITIZE_ADDRESS__
    signal(SIGSEGV, died);
    signal(SIGBUS, died);
    signal(SIGFPE, died);
    signal(SIGILL, died);
    signal(SIGABRT, died);
#endif
`
