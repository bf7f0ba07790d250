package sizing

import (
	"context"
	"errors"
	"fmt"
	"math"

	"llmmemory/internal/sim"
	"llmmemory/internal/sim/capacity"
	"llmmemory/internal/sim/cost"
)

// A Target is what a given rate takes. All seeds have to hold.
type Target struct {
	Rate  float64 `json:"rate"`
	Holds bool    `json:"holds"` // as the server is

	// Blocks is the smallest number that holds, to 2 %; 0: none up to MostBlocks
	// does, it is not memory that is missing. That more blocks are never worse is
	// taken for granted.
	Blocks     int   `json:"blocks"`
	Bytes      int64 `json:"bytes"`
	MostBlocks int   `json:"mostBlocks"`

	// Servers are ways to have it with more GPUs, the scenario's own first.
	Servers []Server `json:"servers"`
	Note    string   `json:"note,omitempty"`
}

// A Server is a number of GPUs that share each layer.
type Server struct {
	Workers  int     `json:"workers"`
	Rate     float64 `json:"rate"` // that lasts
	Replicas int     `json:"replicas"`
	GPUs     int     `json:"gpus"` // of all replicas
}

// mostWorkers are what shares a fast link, in one machine.
const mostWorkers = 8

// mostMemory is how many times the server's blocks are looked at.
const mostMemory = 64

func (s *sizer) target(ctx context.Context) (*Target, error) {
	t := &Target{Rate: s.Question.Target, MostBlocks: mostMemory * s.plan.Scenario.Server.NumGPUBlocks}
	t.Holds = s.base.Rate >= t.Rate
	var err error
	if t.Blocks, err = s.blocks(ctx, t); err != nil {
		return nil, err
	}
	t.Bytes = s.plan.Setup.LLM.KVBytesPerToken() * int64(t.Blocks) * int64(s.plan.Scenario.Server.BlockSize)
	t.Servers = append(t.Servers, s.server(s.plan.Setup.Workers, s.base))
	if t.Holds {
		t.Servers[0].Replicas, t.Servers[0].GPUs = 1, s.plan.Setup.Workers
		return t, nil
	}
	switch {
	case s.plan.Setup.Linear != nil:
		t.Note = "times measured with one number of GPUs say nothing of others: with --model and --gpu they are computed"
		return t, nil
	case s.Scenario.Server.NumGPUBlocks > 0:
		t.Note = "--blocks is given, so other numbers of GPUs in a server were not tried"
		return t, nil
	}
	for w := 1; w <= max(mostWorkers, s.plan.Setup.Workers); w *= 2 {
		if w == s.plan.Setup.Workers {
			continue
		}
		c, ok, err := s.workers(ctx, w)
		if err != nil {
			return nil, err
		}
		if ok && c.Rate > 0 {
			t.Servers = append(t.Servers, s.server(w, c))
			if c.Rate >= t.Rate {
				break
			}
		}
	}
	return t, nil
}

func (s *sizer) server(workers int, c capacity.Capacity) Server {
	v := Server{Workers: workers, Rate: c.Rate}
	if c.Rate > 0 {
		v.Replicas = int(math.Ceil(s.Question.Target/c.Rate - 1e-9))
		v.GPUs = v.Replicas * workers
	}
	return v
}

func (s *sizer) holds(ctx context.Context, blocks int) (bool, error) {
	v := s.plan.Scenario.Server
	v.NumGPUBlocks = blocks
	plan, err := s.plan.With(s.plan.Setup, v)
	if errors.Is(err, sim.ErrConfig) {
		return false, nil // too few for the system
	}
	if err != nil {
		return false, err
	}
	return s.load.Holds(ctx, plan, s.SLO, s.Question.Target, s.pool)
}

// blocks bisects between what the longest request needs and what there is, or
// the most that is looked at.
func (s *sizer) blocks(ctx context.Context, t *Target) (int, error) {
	v := s.plan.Scenario.Server
	if s.plan.System.Memory == sim.Static {
		return 0, nil // has no blocks
	}
	high := v.NumGPUBlocks
	if !t.Holds {
		high = t.MostBlocks
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

// workers finds the capacity with another number of GPUs; not ok: they do not
// fit, or cannot share the heads.
func (s *sizer) workers(ctx context.Context, w int) (c capacity.Capacity, ok bool, err error) {
	setup, v := s.plan.Setup, s.plan.Scenario.Server
	setup.Workers = w
	setup.Name = fmt.Sprintf("%s on %d x %s", setup.LLM.Name, w, setup.GPU.Name)
	v.NumGPUBlocks, v.NumCPUBlocks = 0, s.Scenario.Server.NumCPUBlocks
	plan, err := s.plan.With(setup, v)
	if errors.Is(err, cost.ErrMemory) || errors.Is(err, cost.ErrFile) {
		return c, false, nil
	}
	if err != nil {
		return c, false, err
	}
	c, err = s.load.Find(ctx, plan, s.SLO, s.answer(nil))
	if errors.Is(err, capacity.ErrUnbounded) || errors.Is(err, capacity.ErrShort) {
		return c, false, nil
	}
	return c, err == nil, err
}
