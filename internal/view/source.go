package view

import (
	"fmt"

	"llmmemory/internal/serve"
	"llmmemory/internal/vllm/v0"
)

// A Tabler is a scheduler whose tables can be seen.
type Tabler interface {
	// Table is the block table of a sequence of a request, nil if it has none.
	// The ids of the device that the request is on count from 0.
	Table(id, sequence int) []int32

	// Queues are the ids of the requests in each queue, in order. Those that
	// are swapped have their blocks on the CPU.
	Queues() (waiting, running, swapped []int)
}

// A counter is a Tabler whose reference counts can be seen.
type counter interface {
	// Counts are those of all blocks, by id.
	Counts() (gpu, cpu []int32)
}

// A cacher is a Tabler that keeps blocks of finished prefixes.
type cacher interface {
	// Cached are the GPU blocks that no table names and a hit can still find.
	Cached() []int32
}

// tabler is how a scheduler can be seen.
func tabler(s serve.Scheduler) (Tabler, error) {
	switch s := s.(type) {
	case *v0.Scheduler:
		return vllmV0{s}, nil
	case Tabler:
		return s, nil
	default:
		return nil, fmt.Errorf("%w: a %T does not show its block tables", ErrRecording, s)
	}
}

// vllmV0 counts the CPU's blocks from 0, and gives each request one sequence.
type vllmV0 struct{ *v0.Scheduler }

func (s vllmV0) Table(id, sequence int) []int32 {
	if sequence != 0 {
		return nil
	}
	table := s.Scheduler.Table(id)
	_, cpu := s.Manager().Devices()
	if len(table) == 0 || !cpu.Has(table[0]) {
		return table
	}
	local := make([]int32, len(table))
	for i := range table {
		local[i] = table[i] - cpu.First()
	}
	return local
}

func (s vllmV0) Counts() (gpu, cpu []int32) {
	g, c := s.Manager().Devices()
	return g.Counts(), c.Counts()
}

func (s vllmV0) Cached() []int32 {
	ids := []int32{}
	for _, e := range s.Manager().Evictor() {
		ids = append(ids, e.ID)
	}
	return ids
}
