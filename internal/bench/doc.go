// Package bench measures the serving core: the speed table of the README, how
// cost grows with the pool and with the running requests, and the memory of a
// block. The same cases are Go benchmarks (go test -bench . ./internal/bench).
//
// Times are processor time of the measuring thread, so that other
// programs on the machine disturb them less; each is the median of several
// samples. vLLM's figures are those of its Python code on the same kind of
// machine: CPython 3.11.7, one thread of a virtual AMD EPYC, the best of five runs.
package bench
