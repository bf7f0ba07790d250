package replay

import (
	"fmt"
	"slices"

	"llmmemory/internal/scheduling/paper"
)

// sospManager plays the recordings of the paper's block manager.
type sospManager struct {
	m      *paper.Manager
	groups map[name]*sospGroup
	seqs   map[int]place
}

type sospGroup struct {
	paper.Group
	ids []int // of Seqs
}

type place struct {
	group *sospGroup
	index int
}

func newSospManager(c *Init) (*sospManager, error) {
	m, err := paper.NewManager(paper.Config{BlockSize: c.Block, NumGPUBlocks: c.GPU, NumCPUBlocks: c.CPU, Watermark: c.Watermark})
	if err != nil {
		return nil, err
	}
	p := &sospManager{m: m, groups: map[name]*sospGroup{}, seqs: map[int]place{}}
	return p, c.sameWatermark(m.Watermark())
}

func (p *sospManager) free() any {
	gpu, cpu := p.m.Devices()
	return []int{gpu.NumFree(), cpu.NumFree()}
}

func (p *sospManager) check() error {
	return p.m.Check(func(yield func(*paper.Group) bool) {
		for _, g := range p.groups {
			if !yield(&g.Group) {
				return
			}
		}
	})
}

func (p *sospManager) play(op *Op, r result) error {
	switch op.Name {
	case "can_allocate":
		r["ok"] = p.m.CanAllocate(op.N)
		return nil
	case "allocate":
		return p.allocate(op, r)
	case "append", "free", "refork":
		return p.playSeq(op, r)
	case "state":
		gpu, cpu := p.m.Devices()
		r["gpu_free"], r["cpu_free"] = bottomUp(slices.Collect(gpu.Free())), bottomUp(slices.Collect(cpu.Free()))
		return nil
	}
	g := p.groups[op.GroupName]
	switch op.Name {
	case "can_append":
		r["ok"] = p.m.CanAppend(&g.Group)
	case "can_swap_out":
		r["ok"] = p.m.CanSwapOut(&g.Group)
	case "can_swap_in":
		r["ok"] = p.m.CanSwapIn(&g.Group)
	case "swap_out", "swap_in":
		return p.swap(g, op, r)
	default:
		return fmt.Errorf("there is no operation %q in a recording of the paper's manager", op.Name)
	}
	return nil
}

// bottomUp reverses a stack: recordings list its bottom first.
func bottomUp(ids []int32) []int32 {
	slices.Reverse(ids)
	return append([]int32{}, ids...)
}

func (p *sospManager) allocate(op *Op, r result) error {
	g := &sospGroup{ids: op.Seqs, Group: paper.Group{Seqs: make([]paper.Seq, len(op.Seqs))}}
	for i := range g.Seqs {
		g.Seqs[i].Len = op.N
	}
	if err := p.m.Allocate(&g.Group); err != nil {
		return err
	}
	p.groups[op.GroupName] = g
	for i, id := range op.Seqs {
		p.seqs[id] = place{g, i}
	}
	r["tables"] = g.tables()
	return nil
}

// tables returns the tables of the unfinished sequences.
func (g *sospGroup) tables() map[int][]int32 {
	all := map[int][]int32{}
	for i, id := range g.ids {
		if s := &g.Seqs[i]; !s.Finished {
			all[id] = tableOf(s.Table())
		}
	}
	return all
}

func (p *sospManager) playSeq(op *Op, r result) error {
	id := op.Seq
	if op.Name == "refork" {
		id = op.Child
	}
	seq := p.seqs[id]
	s := &seq.group.Seqs[seq.index]
	switch op.Name {
	case "append":
		s.Len++
		pair, copied, err := p.m.Append(&seq.group.Group, seq.index)
		if err != nil {
			return err
		}
		r["cow"], r["table"] = nil, tableOf(s.Table())
		if copied {
			r["cow"] = row{pair.Src, pair.Dst}
		}
	case "free":
		p.m.Free(&seq.group.Group, seq.index)
		s.Finished = true
		delete(p.seqs, id)
	case "refork":
		if err := p.m.Refork(&seq.group.Group, seq.index, p.seqs[op.Parent].index); err != nil {
			return err
		}
		r["table"] = tableOf(s.Table())
	}
	return nil
}

func (p *sospManager) swap(g *sospGroup, op *Op, r result) error {
	move := p.m.SwapOut
	if op.Name == "swap_in" {
		move = p.m.SwapIn
	}
	pairs, err := move(nil, &g.Group)
	if err != nil {
		return err
	}
	list := mapping(pairs)
	slices.SortFunc(list, func(a, b row) int { return int(a[0].(int32) - b[0].(int32)) })
	r["mapping"], r["tables"] = list, g.tables()
	return nil
}
