// Package sim runs any scheduler of the project in simulated time. Requests arrive from a workload, and a cost model
// gives the time of each iteration. The run measures latency and the use of memory as the PagedAttention paper does.
//
// Time advances in iterations. In each, requests that have arrived are added, the scheduler chooses the work,
// and tokens are generated at the end. Only the workload, beams and drafts are random, and their random
// numbers depend only on seeds. So equal configurations give the same results, byte for byte.
//
// Packages next to this one:
//
//	workload    where requests come from
//	cost        how long an iteration takes and how many blocks fit in memory
//	calibrate   cost files from a user's measurements
//	scenario    one run as a user writes it
//	experiment  the runs for the paper's figures
//	fleet       several replicas behind a router
//	capacity    the highest rate that meets a service level objective
//	plans       what limits this rate, and which changes raise it
//
// The rules of schedulers and block managers are in their own packages.
package sim
