package plans

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"llmmemory/internal/simulation/capacity"
	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
)

// A Target says what a given rate needs.
type Target struct {
	Rate  float64 `json:"rate"`
	Holds bool    `json:"holds"` // with the unchanged server

	// Blocks is the smallest number of blocks with which the server sustains Rate under all seeds, accurate
	// to 2 %. It is 0 if MaxBlocks are not enough, if more memory does not help, or if Near is set.
	//
	// Blocks is found with short runs and is not confirmed. In these runs, the target is scaled by the ratio of the
	// capacity in short runs to the report's capacity. The search assumes that more blocks never lower the capacity.
	Blocks    int   `json:"blocks"`
	Bytes     int64 `json:"bytes"`
	MaxBlocks int   `json:"mostBlocks"`
	Near      bool  `json:"near,omitempty"` // the target is so close to the capacity that shorter runs hold it

	// Servers lists servers that differ in their number of GPUs. For each, it has the number of such servers that
	// together sustain Rate. The first element is the scenario's server.
	Servers []Server `json:"servers"`
	Note    string   `json:"note,omitempty"`
}

// A Server describes a server with Workers GPUs in each pipeline stage. Replicas is the number of such servers that
// together sustain the target rate.
type Server struct {
	Workers   int     `json:"workers"`
	Rate      float64 `json:"rate"`      // capacity of one server
	Confirmed bool    `json:"confirmed"` // Rate was confirmed by long runs
	Replicas  int     `json:"replicas"`
	GPUs      int     `json:"gpus"` // of all replicas
}

// String describes the server in one line.
func (s Server) String() string {
	qualifier := "at most"
	if !s.Confirmed {
		qualifier = "by shorter runs about"
	}
	return fmt.Sprintf("%s to a server, each %s %s/s: %s, %s", number(s.GPUs/max(1, s.Replicas), "GPU"), qualifier,
		rate(s.Rate), number(s.Replicas, "server"), number(s.GPUs, "GPU"))
}

func number(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// maxWorkers is the number of GPUs in one machine. A fast link connects these GPUs.
const maxWorkers = 8

// maxMemory limits the search for Target.Blocks, as a multiple of the server's number of blocks.
const maxMemory = 64

func (s *sizer) target(ctx context.Context) (*Target, error) {
	t := &Target{Rate: s.Question.Target, MaxBlocks: maxMemory * s.plan.Scenario.Server.NumGPUBlocks}
	t.Holds = s.confirmed.Rate >= t.Rate
	var err error
	if t.Blocks, err = s.blocks(ctx, t); err != nil {
		return nil, err
	}
	t.Bytes = s.plan.Setup.LLM.KVBytesPerToken() * int64(t.Blocks) * int64(s.plan.Scenario.Server.BlockSize)
	t.Servers = append(t.Servers, s.server(s.plan.Setup.Workers, s.confirmed, true))
	if t.Holds {
		t.Servers[0].Replicas, t.Servers[0].GPUs = 1, s.plan.Setup.GPUs()
		return t, nil
	}
	if t.Note = s.fixed(); t.Note != "" {
		return t, nil
	}
	if s.others == nil {
		if s.others, err = s.otherServers(ctx); err != nil {
			return nil, err
		}
	}
	return t, s.fewest(ctx, t)
}

// fixed returns the reason why servers with other numbers of GPUs cannot be tried, or "".
func (s *sizer) fixed() string {
	switch {
	case s.plan.Setup.Linear != nil:
		return "other numbers of GPUs were not tried, because the times were measured with one: --model and --gpu compute them"
	case s.Scenario.Server.NumGPUBlocks > 0:
		return "--blocks is given, so other numbers of GPUs in a server were not tried"
	}
	return ""
}

// An otherServer is a server like the scenario's with another number of GPUs.
type otherServer struct {
	workers int
	plan    *scenario.Plan
	found   capacity.Capacity
}

// otherServers finds the capacities, in short runs, of servers with other numbers of GPUs. It omits a server if the
// model does not fit or cannot be divided among the GPUs. It also omits servers with the capacity 0 or with too few
// requests for a search. It stops after the first server that sustains the target rate.
func (s *sizer) otherServers(ctx context.Context) ([]otherServer, error) {
	all := []otherServer{}
	if s.fixed() != "" {
		return all, nil
	}
	for w := 1; w <= max(maxWorkers, s.plan.Setup.Workers); w *= 2 {
		if w == s.plan.Setup.Workers {
			continue
		}
		setup, v := s.plan.Setup, s.plan.Scenario.Server
		setup.Workers = w
		setup.Name = fmt.Sprintf("%s on %d x %s", setup.LLM.Name, w, setup.GPU.Name)
		v.NumGPUBlocks, v.NumCPUBlocks = 0, s.Scenario.Server.NumCPUBlocks
		plan, err := s.plan.With(setup, v)
		var found capacity.Capacity
		if err == nil {
			found, err = s.load.Find(ctx, plan, s.SLO, s.options(capacity.CompareHorizon, nil))
		}
		if doesNotFit(err) || tooFewRequests(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if found.Rate > 0 {
			all = append(all, otherServer{w, plan, found})
		}
		if found.Rate >= s.Question.Target {
			break
		}
	}
	return all, nil
}

// fewest adds the other servers to t.Servers. It then confirms, with long runs, the capacity of the server that
// needs the fewest GPUs for the target. If the confirmed capacity is lower, this server needs more GPUs, and another
// one may need fewer. fewest repeats this until the server that needs the fewest GPUs is confirmed.
func (s *sizer) fewest(ctx context.Context, t *Target) error {
	for _, o := range s.others {
		t.Servers = append(t.Servers, s.server(o.workers, o.found, false))
	}
	for {
		best := 0
		for i, v := range t.Servers {
			if v.GPUs < t.Servers[best].GPUs {
				best = i
			}
		}
		if t.Servers[best].Confirmed {
			return nil
		}
		o := &s.others[best-1]
		err := s.load.Confirm(ctx, o.plan, s.SLO, s.Lasts, s.pool, &o.found)
		switch {
		case errors.Is(err, capacity.ErrShort): // no rate lasts
			t.Servers = slices.Delete(t.Servers, best, best+1)
			s.others = slices.Delete(s.others, best-1, best)
		case err != nil:
			return err
		default:
			t.Servers[best] = s.server(o.workers, o.found, true)
		}
	}
}

func (s *sizer) server(workers int, c capacity.Capacity, confirmed bool) Server {
	v := Server{Workers: workers, Rate: c.Rate, Confirmed: confirmed}
	if c.Rate > 0 {
		v.Replicas = int(math.Ceil(s.Question.Target/c.Rate - 1e-9))
		v.GPUs = v.Replicas * workers * max(1, s.plan.Setup.Stages)
	}
	return v
}

// holds reports whether short runs sustain the target with a number of blocks. Short runs sustain higher rates than
// runs of an hour. holds therefore multiplies the target by a ratio: the lowest capacity that short runs found for the
// scenario's server under any seed, divided by the capacity that long runs found for this server.
func (s *sizer) holds(ctx context.Context, blocks int) (bool, error) {
	v := s.plan.Scenario.Server
	v.NumGPUBlocks = blocks
	plan, err := s.plan.With(s.plan.Setup, v)
	if errors.Is(err, sim.ErrConfig) {
		return false, nil // too few blocks for the system
	}
	if err != nil {
		return false, err
	}
	return s.load.Holds(ctx, plan, s.SLO, s.Question.Target*s.byShortRuns.Low/s.confirmed.Rate, s.pool)
}

// blocks finds Target.Blocks by bisection. If the server sustains the target, blocks searches between the number of
// blocks that the longest request needs and the server's number. If the server does not sustain it, blocks searches
// between the server's number and MaxBlocks. See Target.Blocks for when it returns 0.
func (s *sizer) blocks(ctx context.Context, t *Target) (int, error) {
	v := s.plan.Scenario.Server
	if s.plan.System.Memory == sim.Static {
		return 0, nil // has no blocks
	}
	high := v.NumGPUBlocks
	if !t.Holds {
		var err error
		if t.Near, err = s.holds(ctx, high); err != nil || t.Near {
			return 0, err
		}
		high = t.MaxBlocks
		if ok, err := s.holds(ctx, high); err != nil || !ok {
			return 0, err
		}
	}
	low := max(1, (s.load.Longest+v.BlockSize-1)/v.BlockSize) - 1
	if !t.Holds {
		low = max(low, v.NumGPUBlocks)
	}
	for high-low > max(1, low/50) {
		middle := low + (high-low)/2
		if low > 0 && high > 4*low {
			middle = int(math.Sqrt(float64(low) * float64(high)))
		}
		ok, err := s.holds(ctx, middle)
		if err != nil {
			return 0, err
		}
		if ok {
			high = middle
		} else {
			low = middle
		}
	}
	return high, nil
}
