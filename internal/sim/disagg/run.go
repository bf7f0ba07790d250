package disagg

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"llmmemory/internal/sim"
	"llmmemory/internal/sim/cost"
	"llmmemory/internal/sim/workload"
)

// A Config is a number of servers that are alike.
type Config struct {
	Prefill, Decode int // servers; without Prefill each of the others does both
	Server          sim.Server
	Cost            *cost.Model
	TokenBytes      int64   // of keys and values
	Link            float64 // GB/s out of each prefill server
	Latency         float64 // s, of each transfer besides
	Seed            uint64
}

// An Answer is what happened to a request; times in seconds.
type Answer struct {
	Arrival, First, Done float64
	Output               int
	Sent                 float64 // s, from the first token until keys and values were there
	Refused              bool
}

// Run serves requests, whose arrivals do not decrease, and returns their answers in order;
// recomputed is how many requests decode servers preempted: neither the time to compute their
// keys and values again nor that to send them again is counted.
func Run(ctx context.Context, c Config, requests []workload.Request) (answers []Answer, recomputed int, err error) {
	if c.Prefill < 0 || c.Decode < 1 || c.Prefill > 0 && !(c.Link > 0) || !(c.Latency >= 0) {
		return nil, 0, fmt.Errorf("%w: %d servers prefill and %d decode, over %v GB/s and %v s: want at least one that decodes, and a link", sim.ErrConfig, c.Prefill, c.Decode, c.Link, c.Latency)
	}
	answers = make([]Answer, len(requests))
	for i := range requests {
		answers[i] = Answer{Arrival: requests[i].Arrival, Output: requests[i].Output}
	}
	if c.Prefill == 0 {
		recomputed, err = c.serve(ctx, c.Decode, c.Cost, all(len(requests)), requests, answers)
		return answers, recomputed, err
	}
	prompts := slices.Clone(requests)
	for i := range prompts {
		prompts[i].Output = 1
	}
	if _, err := c.serve(ctx, c.Prefill, c.Cost, all(len(requests)), prompts, answers); err != nil {
		return nil, 0, err
	}
	rest := slices.Clone(requests)
	waiting := c.send(answers, rest)
	recomputed, err = c.serve(ctx, c.Decode, c.Cost.Received(), waiting, rest, answers)
	return answers, recomputed, err
}

func all(n int) []int {
	indexes := make([]int, n)
	for i := range indexes {
		indexes[i] = i
	}
	return indexes
}

// send is when keys and values of each prompt are at a decode server: it changes requests
// to what is left of them there, and returns those that are left in the order in which they
// arrive. A request that was sent to server i mod Prefill waits for those before it.
func (c Config) send(answers []Answer, requests []workload.Request) []int {
	var left []int
	order := all(len(answers))
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(answers[a].First, answers[b].First) })
	free := make([]float64, c.Prefill)
	for _, i := range order {
		a, q := &answers[i], &requests[i]
		if a.Refused || q.Output == 1 {
			continue
		}
		from := i % c.Prefill
		free[from] = max(free[from], a.First) + float64(c.TokenBytes)*float64(q.Prompt)/(c.Link*1e9)
		q.Arrival = free[from] + c.Latency
		a.Sent = q.Arrival - a.First
		q.Prompt, q.Output = q.Prompt+1, q.Output-1
		left = append(left, i)
	}
	slices.SortStableFunc(left, func(a, b int) int { return cmp.Compare(requests[a].Arrival, requests[b].Arrival) })
	return left
}

// serve gives requests, some of all, to n servers in turn, and notes when they are done.
// What was answered before keeps its first token.
func (c Config) serve(ctx context.Context, n int, model *cost.Model, some []int, requests []workload.Request, answers []Answer) (recomputed int, err error) {
	for server := range n {
		var mine []int
		for at := server; at < len(some); at += n {
			mine = append(mine, some[at])
		}
		result, err := sim.Run(ctx, sim.Config{
			Server: c.Server, Cost: model, Seed: c.Seed + uint64(server),
			Left: func(d sim.Departure) {
				a := &answers[mine[d.Index]]
				if !d.Answered {
					a.Refused = true
					return
				}
				if a.Done = d.Done; a.First == 0 {
					a.First = d.First
				}
			},
		}, &source{requests: requests, left: mine})
		if err != nil {
			return 0, fmt.Errorf("server %d of %d: %w", server+1, n, err)
		}
		recomputed += result.Recomputed
	}
	return recomputed, nil
}

// A source is some of all requests.
type source struct {
	requests []workload.Request
	left     []int
}

func (s *source) Next(r *workload.Request) error {
	if len(s.left) == 0 {
		return io.EOF
	}
	*r = s.requests[s.left[0]]
	s.left = s.left[1:]
	return nil
}
