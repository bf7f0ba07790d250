// Package plans computes, for a model, GPUs and a workload: how many requests a second
// the server sustains, what limits the rate, which block size and system to use, and
// how much memory or how many GPUs a given rate needs.
//
//	report, err := plans.Size(ctx, plans.Question{Scenario: s, SLO: slo})
//	report.Write(os.Stdout)
//
// To find limits and better settings, it changes one thing and searches for the capacity
// again with the same requests. A change counts if the gain under every seed is more than
// the precision of the search.
//
// The search for a capacity is in package capacity.
package plans
