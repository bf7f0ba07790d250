// Package fleet runs many replicas of a server: a router sends each request to one of
// them, replicas may be of different GPUs, fail and start again, and come and go with the
// load. Each replica is a sim.Replica; all share one simulated clock.
//
// No rule of a scheduler and nothing of how a replica runs may live here.
package fleet
