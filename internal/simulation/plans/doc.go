// Package plans answers the questions of an engineer who has a model, GPUs and requests:
// how many requests a second fit, what limits them, which block size and which
// policy to use, and how much memory or how many GPUs a given rate needs.
//
//	report, err := plans.Size(ctx, plans.Question{Scenario: s, SLO: slo})
//	report.Write(os.Stdout)
//
// To find what limits a capacity, and what to use, plans changes one thing and searches for the
// capacity again with the same requests. A change counts if every seed gains by more than the
// precision of the search.
//
// The search for a capacity is in package capacity.
package plans
