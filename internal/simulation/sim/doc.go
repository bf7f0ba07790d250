// Package sim runs any scheduler of the project through simulated time: requests
// arrive from a workload, iterations take as long as a cost model says, and latency
// and the use of memory are measured as in the PagedAttention paper.
//
// Time advances in iterations. In each, requests that have arrived are added, the scheduler chooses the work, and
// tokens are generated at the end. Only the workload, beams and drafts are random, and they depend only on seeds.
// So equal configurations give results with the same bytes.
//
// Subpackages:
//
//	workload    where requests come from
//	cost        how long an iteration takes and how many blocks fit
//	calibrate   cost files from a user's measurements
//	scenario    one run as a user writes it
//	sweep       many of these
//	experiment  the runs for the paper's figures
//	fleet       many replicas
//	capacity    the highest rate that holds an objective
//	plans       what limits it, and what to change
//
// The rules of schedulers and block managers are in their own packages.
package sim
