package reproduce

import _ "embed"

// heap is the heap of a program, as that of the grader: what is allocated is not zero, what is freed is filled and not
// used again. With AddressSanitizer, and under Valgrind, it is not used.
//
//go:embed c/heap.c
var heap string

// probe is the code at the beginning of main that tests whether this heap can show the difference. Valgrind and
// AddressSanitizer have their own heaps.
const probe = `    void *volatile one = malloc(1);
    free(one);
    int counted = allocations > 0;
`

// deaths has the function that ends a program with status 1 when a call does not return.
//
//go:embed c/signals.c
var deaths string

// watching is the code at the beginning of main that installs signal handlers. A debugger, Valgrind and
// AddressSanitizer see the signals first.
const watching = `#ifndef __SANITIZE_ADDRESS__
    signal(SIGSEGV, died);
    signal(SIGBUS, died);
    signal(SIGFPE, died);
    signal(SIGILL, died);
    signal(SIGABRT, died);
#endif
`
