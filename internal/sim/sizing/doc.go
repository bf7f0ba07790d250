// Package sizing answers what an engineer asks who has a model, GPUs and requests:
// how many requests a second fit, what limits them, which block size and which
// policy to take, and how much memory or how many GPUs a given rate needs.
//
//	report, err := sizing.Size(ctx, sizing.Question{Scenario: s, SLO: slo})
//	report.Write(os.Stdout)
//
// What limits a capacity is found by changing one thing and looking for the
// capacity again, with the same requests; so is what to take. A change counts
// where every seed gains by more than the precision of the search.
//
// The search for a capacity lives in package capacity.
package sizing
