// Package plans answers, for a model, GPUs and a workload: how many requests a second the server sustains, what
// limits this rate, which block size and system to use, and how much memory or how many GPUs a given rate needs.
//
//	report, err := plans.Size(ctx, plans.Question{Scenario: s, SLO: slo})
//	report.Write(os.Stdout)
//
// To find what limits the rate, and better settings, it changes one thing at a time and searches for the capacity
// again, with the same requests. A change counts if it gains more than the precision of the search under every seed.
//
// Package capacity does the searches.
package plans
