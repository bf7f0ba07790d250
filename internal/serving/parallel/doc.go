// Package parallel has a thread pool, and a barrier for goroutines. Matrix products, attention and copies share one
// pool, and run on it one after the other. They therefore do not compete for the cores. Run does the tasks 0 to n-1,
// each on exactly one worker, in any order. The result of a task must therefore depend on the task's number and not on
// the worker's. A task may use the worker's number to choose scratch memory. Run allocates nothing.
package parallel
