package replay

import (
	"fmt"
	"maps"

	"llmmemory/internal/scheduling/paper"
)

type orca struct {
	memory *paper.Reservation
	chunks map[int]paper.Chunk
	asked  *Op // the last can_allocate, which has the lengths for the next allocate
}

func newOrca(c *Init, policy paper.Policy) *orca {
	p := &orca{chunks: map[int]paper.Chunk{}, memory: mustGet(paper.NewReservation(paper.OrcaConfig{
		BlockSize: c.Block, NumGPUBlocks: c.Blocks, MaxModelLen: c.Largest * c.Block, Policy: policy,
	}))}
	if got, want := text(p.lists()), text(c.FreeLists); got != want {
		must(fmt.Errorf("the free lists are %s, the recording says %s", got, want))
	}
	return p
}

func (p *orca) free() any { return p.memory.Buddy().NumFree() }

func (p *orca) check() error { return p.memory.Buddy().Check() }

func (p *orca) lists() map[int][]int32 {
	return maps.Collect(p.memory.Buddy().Lists())
}

func (p *orca) play(op *Op, r result) {
	switch op.Name {
	case "can_allocate":
		r["blocks"] = p.memory.Blocks(op.Prompt, op.Output)
		r["ok"] = p.memory.Fits(op.Prompt, op.Output, len(op.Seqs))
		p.asked = op
	case "allocate":
		p.allocate(op, r)
	case "free":
		p.memory.Free(p.chunks[op.Seq])
		delete(p.chunks, op.Seq)
	case "state":
		r["free_lists"] = p.lists()
	default:
		unknown(op, "Orca")
	}
}

func (p *orca) allocate(op *Op, r result) {
	chunks := mustGet(p.memory.Reserve(nil, p.asked.Prompt, p.asked.Output, len(op.Seqs)))
	starts, sizes := []int32{}, []int32{}
	for i, id := range op.Seqs {
		p.chunks[id] = chunks[i]
		starts, sizes = append(starts, chunks[i].Start), append(sizes, chunks[i].Size)
	}
	r["starts"], r["sizes"] = starts, sizes
}
