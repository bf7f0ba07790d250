/*
 * heap.h - what heap.c knows about the allocations of the code under test. heap.c replaces
 * malloc, so it is not linked when Valgrind runs the suite. The functions are weak symbols,
 * and NULL if heap.c is not linked.
 */
#ifndef HEAP_H
#define HEAP_H

#include <stdbool.h>
#include <stddef.h>

/* Forgets everything; the calling thread becomes the one that is observed. */
__attribute__((weak)) void heap_reset(void);

/* Allocations count only between heap_watch(true) and heap_watch(false). */
__attribute__((weak)) void heap_watch(bool on);

/* How many allocations were asked for. */
__attribute__((weak)) long heap_calls(void);

/* How many of the blocks are not yet freed. */
__attribute__((weak)) long heap_live(void);

/* Returns the requested size of the live block that starts at p, or 0 if there is none. */
__attribute__((weak)) size_t heap_size_of(const void *p);

/* The n-th allocation from now on fails, once. 0: none does. */
__attribute__((weak)) void heap_fail_nth(long n);

#endif
