// Package benchtest helps benchmarks to compare the speed of code with the highest speed of the processor. Read reads
// memory, and Multiply multiplies and adds, as fast as the processor can. ByTurns measures both sides of a comparison
// alternately in one process, so that other programs disturb both sides equally.
package benchtest
