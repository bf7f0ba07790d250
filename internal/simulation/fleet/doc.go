// Package fleet simulates several replicas of a server behind a router, which sends each request to one of them.
// Replicas may have different GPUs. Each replica is a sim.Replica; all replicas share one simulated clock.
package fleet
