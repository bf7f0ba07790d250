package fleet

import "llmmemory/internal/simulation/sim"

// A Result has the measurements of a run.
type Result struct {
	sim.Result
	Replicas []ReplicaResult `json:"replicas"`
}

// A ReplicaResult has the measurements of one replica.
type ReplicaResult struct {
	Kind       string `json:"kind"`
	Answered   int    `json:"answered"`
	Iterations int    `json:"iterations"`
	Generated  int    `json:"generated"` // tokens
	Prompted   int    `json:"prompted"`
	Hits       int    `json:"hits"`
	Recomputed int    `json:"recomputed"` // preemptions
}

// HitRate returns the fraction of prompt tokens that were found in caches.
func (r *Result) HitRate() float64 {
	if r.Hits+r.Prompted == 0 {
		return 0
	}
	return float64(r.Hits) / float64(r.Hits+r.Prompted)
}

// Imbalance returns the number of requests that the busiest replica answered, divided by the mean over replicas.
func (r *Result) Imbalance() float64 {
	maximum := 0
	for _, p := range r.Replicas {
		maximum = max(maximum, p.Answered)
	}
	if r.Answered == 0 {
		return 0
	}
	return float64(maximum*len(r.Replicas)) / float64(r.Answered)
}

// finish returns the result of the run. It is a copy, so that the garbage collector can free the fleet.
func (f *fleet) finish() *Result {
	r := f.result
	f.latencies.Fill(&r.Result)
	for _, p := range f.replicas {
		result := p.Result()
		v := ReplicaResult{
			Kind: p.kind.Name, Answered: result.Answered, Iterations: result.Iterations, Generated: result.Generated,
			Prompted: result.Prompted, Hits: result.Hits, Recomputed: result.Recomputed,
		}
		r.Iterations += v.Iterations
		r.Generated += v.Generated
		r.Prompted += v.Prompted
		r.Hits += v.Hits
		r.Recomputed += v.Recomputed
		r.Replicas = append(r.Replicas, v)
	}
	return &r
}
