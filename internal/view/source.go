package view

import (
	"fmt"

	"llmmemory/internal/scheduling/serve"
	"llmmemory/internal/scheduling/vllm/v0"
)

// A Tabler is a scheduler that exposes its block tables.
type Tabler interface {
	// Table returns the block table of a sequence of a request, or nil if the sequence has no blocks. All blocks of a
	// request are on one device. The ids of blocks begin at 0 on each device.
	Table(id, sequence int) []int32

	// Queues returns the ids of the requests in each queue, in order. The blocks of swapped requests are on the CPU.
	Queues() (waiting, running, swapped []int)
}

// A counter is a Tabler that exposes its reference counts.
type counter interface {
	// Counts returns the counts of all blocks, by id.
	Counts() (gpu, cpu []int32)
}

// A cacher is a Tabler that keeps blocks of finished prefixes.
type cacher interface {
	// Cached returns the free GPU blocks with cached tokens. No table names them, but a later request can find them.
	Cached() []int32
}

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

// vllmV0 makes V0's scheduler a Tabler. Each of its requests has one sequence.
type vllmV0 struct{ *v0.Scheduler }

func (s vllmV0) Table(id, sequence int) []int32 {
	if sequence != 0 {
		return nil
	}
	table := s.Scheduler.Table(id)
	_, cpu := s.Manager().View.Devices()
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
	g, c := s.Manager().View.Devices()
	return g.Counts(), c.Counts()
}

func (s vllmV0) Cached() []int32 {
	ids := []int32{}
	for _, e := range s.Manager().View.Evictor() {
		ids = append(ids, e.ID)
	}
	return ids
}
