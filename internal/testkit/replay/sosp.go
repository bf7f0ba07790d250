package replay

import (
	"slices"

	"llmmemory/internal/scheduling/device"
	"llmmemory/internal/scheduling/paper"
)

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

func newSospManager(c *Init) *sospManager {
	m := mustGet(paper.NewManager(paper.Config{BlockSize: c.Block, NumGPUBlocks: c.GPU, NumCPUBlocks: c.CPU, Watermark: c.Watermark}))
	c.compareWatermark(m.Watermark())
	return &sospManager{m: m, groups: map[name]*sospGroup{}, seqs: map[int]place{}}
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

func (p *sospManager) play(op *Op, r result) {
	switch op.Name {
	case "can_allocate":
		r["ok"] = p.m.CanAllocate(op.N)
	case "allocate":
		p.allocate(op, r)
	case "append", "free", "refork":
		p.playSeq(op, r)
	case "state":
		gpu, cpu := p.m.Devices()
		r["gpu_free"], r["cpu_free"] = bottomUp(slices.Collect(gpu.Free())), bottomUp(slices.Collect(cpu.Free()))
	case "can_append":
		r["ok"] = p.m.CanAppend(&p.groups[op.GroupName].Group)
	case "can_swap_out":
		r["ok"] = p.m.CanSwapOut(&p.groups[op.GroupName].Group)
	case "can_swap_in":
		r["ok"] = p.m.CanSwapIn(&p.groups[op.GroupName].Group)
	case "swap_out":
		p.swap(p.m.SwapOut, op, r)
	case "swap_in":
		p.swap(p.m.SwapIn, op, r)
	default:
		unknown(op, "the paper's manager")
	}
}

// bottomUp reverses a stack: recordings list its bottom first.
func bottomUp(ids []int32) []int32 {
	slices.Reverse(ids)
	return append([]int32{}, ids...)
}

func (p *sospManager) allocate(op *Op, r result) {
	g := &sospGroup{ids: op.Seqs, Group: paper.Group{Seqs: make([]paper.Seq, len(op.Seqs))}}
	for i := range g.Seqs {
		g.Seqs[i].Len = op.N
	}
	must(p.m.Allocate(&g.Group))
	p.groups[op.GroupName] = g
	for i, id := range op.Seqs {
		p.seqs[id] = place{g, i}
	}
	r["tables"] = g.tables()
}

func (g *sospGroup) tables() map[int][]int32 {
	all := map[int][]int32{}
	for i, id := range g.ids {
		if s := &g.Seqs[i]; !s.Finished {
			all[id] = tableOf(s.Table())
		}
	}
	return all
}

func (p *sospManager) playSeq(op *Op, r result) {
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
		must(err)
		r["cow"], r["table"] = nil, tableOf(s.Table())
		if copied {
			r["cow"] = row{pair.Src, pair.Dst}
		}
	case "free":
		p.m.Free(&seq.group.Group, seq.index)
		s.Finished = true
		delete(p.seqs, id)
	case "refork":
		must(p.m.Refork(&seq.group.Group, seq.index, p.seqs[op.Parent].index))
		r["table"] = tableOf(s.Table())
	}
}

func (p *sospManager) swap(move func([]device.Pair, *paper.Group) ([]device.Pair, error), op *Op, r result) {
	g := p.groups[op.GroupName]
	list := mapping(mustGet(move(nil, &g.Group)))
	slices.SortFunc(list, func(a, b row) int { return int(a[0].(int32) - b[0].(int32)) })
	r["mapping"], r["tables"] = list, g.tables()
}
