// Package capacity finds the highest rate of requests that a scenario sustains
// under a service level objective.
//
//	slo, err := capacity.ParseSLO("0.5s/token, ttft<2s@p99")
//	c, err := capacity.Find(ctx, scenario.Scenario{Workload: "sharegpt"}, slo, capacity.Options{})
//	fmt.Println(c.Rate, c.Low, c.High)
//
// Every rate is tried with the same requests: only their arrivals move closer
// together. The search doubles the rate from what the cost model lets expect
// until the objective fails, and bisects. It takes for granted that a higher
// rate is never better. Near the knee that is not so, a run there is chaotic; so
// the lowest rate that failed counts, whatever held above it.
//
// What limits a capacity and what to do about it live in package sizing.
package capacity
