// Package fleet simulates several replicas of a server behind a router, which sends each request to one of them.
// Replicas may have different GPUs. Each is a sim.Replica; all share one simulated clock.
package fleet
