// Package benchtest helps benchmarks to compare work with what the processor can do at most: reading memory,
// multiplying and adding, copying. ByTurns measures both sides of a comparison alternately in one process, so that
// other programs disturb both sides equally.
package benchtest
