// Package sim runs any scheduler of the project through simulated time: requests
// arrive from a workload, iterations take as long as a cost model says, and what
// users and the memory see of it is measured as in the PagedAttention paper.
//
// Time advances in iterations: what has arrived is added, the scheduler decides,
// the iteration runs, its tokens are there at its end. There is no randomness but
// the workload's and, for beams and drafts, that of a seed, so equal
// configurations give equal results to the byte.
//
// Subpackages: workload is where requests come from, cost how long an iteration
// takes and how many blocks fit, calibrate what a user measured of that, scenario
// one run as a user writes it down, sweep many of them, experiment what the paper's
// figures need, fleet many replicas, disagg prefill and decode on different servers,
// capacity the highest rate that holds an objective, sizing what limits it and what to
// take. No rule of a scheduler or of a block manager may live here.
package sim
