// Package plans answers questions about a server for a model, GPUs and a workload. How many requests a second does it
// sustain, and what limits this rate? Which block size and system are best? How much memory or how many GPUs does a
// given rate need?
//
//	report, err := plans.Size(ctx, plans.Question{Scenario: s, SLO: slo})
//	report.Write(os.Stdout)
//
// To find the limit and better settings, the package changes one thing at a time. For each change, it searches for the
// capacity again, with the same requests. A change counts if it gains more than the precision of the search under
// every seed. With one or two seeds, a block size or a system must gain more than 7 %.
//
// Package capacity does the searches.
package plans
