// Package parallel is the one thread pool of a process that computes: matrix
// products, attention and copies all run on it, one after the other, so that
// no two of them fight over the cores.
//
// A Run hands out the tasks 0 to n-1, each to exactly one worker, in an order
// that is not known. So a task's result must depend on its number alone, never
// on the worker that did it: a worker's number may only choose scratch memory.
// A Run allocates nothing. What the tasks are may not live here.
package parallel
