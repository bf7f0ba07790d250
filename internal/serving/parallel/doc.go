// Package parallel is a thread pool. Matrix products, attention and copies share
// one and run on it one after the other, so that they do not compete for the cores.
//
// Run does the tasks 0 to n-1. Each is done by exactly one worker, in any order.
// So the result of a task must depend on its number alone: a worker's number may
// only choose scratch memory. Run allocates nothing.
//
// The packages that run tasks define them; none is defined here.
package parallel
