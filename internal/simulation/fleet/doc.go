// Package fleet runs many replicas of a server behind a router, which sends each request to one of
// them. Replicas may have different GPUs. Each replica is a sim.Replica; all share one simulated clock.
//
// Rules of a scheduler, and how a replica runs, do not belong here.
package fleet
