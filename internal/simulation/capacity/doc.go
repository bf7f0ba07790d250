// Package capacity finds the highest rate of requests at which a scenario meets a service level objective.
//
//	slo, err := capacity.ParseSLO("0.5s/token, ttft<2s@p99")
//	plan, err := scenario.Open(scenario.Scenario{Workload: "sharegpt"})
//	load, err := capacity.NewLoad(plan, 3)
//	c, err := load.Find(ctx, plan, slo, capacity.Options{Precision: 0.02, Horizon: capacity.SearchHorizon})
//	fmt.Println(c.Rate, c.Low, c.High)
//
// Every rate is tried with the same requests; only the times between arrivals change. The search starts at a rate that
// the cost model suggests. It raises or lowers the rate, at most by a factor of 2 at a time. If even a fiftieth of the
// suggested rate misses the objective, it tries a rate at which requests hardly ever overlap. When one rate has met the
// objective and another has missed it, the search bisects. It assumes that latencies at a higher rate are not lower.
// Near the capacity this is not always true, because small changes have large effects there. Therefore a capacity is
// below the lowest rate that missed the objective, even if a higher rate met it.
//
// Package plans finds what limits a capacity and how to raise it.
package capacity
