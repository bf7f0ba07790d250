package replay

import (
	"errors"
	"fmt"
	"slices"

	"llmmemory/internal/scheduling/device"
	"llmmemory/internal/scheduling/vllm/v0"
)

type v0Manager struct {
	m      *v0.Manager
	seqs   map[int]*v0Seq
	groups map[name][]*v0Seq
	copies []device.Pair
}

type v0Seq struct {
	v0.Seq
	id      int
	swapped bool
}

func v0Config(c *Init) v0.Config {
	config := v0.Config{BlockSize: c.Block, NumGPUBlocks: c.GPU, NumCPUBlocks: c.CPU, Watermark: c.Watermark, EnablePrefixCaching: c.Caching}
	if c.Window != nil {
		config.SlidingWindow = *c.Window
	}
	return config
}

func newV0Manager(c *Init) *v0Manager {
	m := mustGet(v0.New(v0Config(c)))
	if c.WindowCap != nil && *c.WindowCap != m.View.WindowBlocks() {
		must(fmt.Errorf("a window has %d blocks, the recording says %d", m.View.WindowBlocks(), *c.WindowCap))
	}
	c.compareWatermark(m.View.Watermark())
	return &v0Manager{m: m, seqs: map[int]*v0Seq{}, groups: map[name][]*v0Seq{}}
}

func (c *Init) compareWatermark(blocks int) {
	if c.Reserved != nil && *c.Reserved != blocks {
		must(fmt.Errorf("the watermark is %d blocks, the recording says %d", blocks, *c.Reserved))
	}
}

func (p *v0Manager) free() any { return []int{p.m.View.FreeGPU(), p.m.View.FreeCPU()} }

func (p *v0Manager) check() error {
	return p.m.Check(func(yield func(*v0.Seq) bool) {
		for _, s := range p.seqs {
			if !yield(&s.Seq) {
				return
			}
		}
	})
}

// raised reports whether err says that too few blocks are free. In this case, raised stores the name of vLLM's
// exception in r. If err is another error, raised panics, and Verify returns this error.
func raised(err error, r result) bool {
	if errors.Is(err, v0.ErrNoFreeBlocks) {
		r["error"] = "NoFreeBlocks"
		return true
	}
	must(err)
	return false
}

func (p *v0Manager) play(op *Op, r result) {
	switch op.Name {
	case "can_allocate":
		r["status"] = p.m.CanAllocate(op.tokens(), op.LookaheadSlots).String()
	case "allocate":
		p.allocate(op, r)
	case "mark_computed":
		p.m.MarkComputed()
	case "state":
		r["gpu"], r["cpu"] = p.state()
	case "access":
		p.m.Access(op.Now, p.named(op.Seqs)...)
	case "common_computed":
		r["ids"] = p.m.Computed([]int32{}, p.named(op.Seqs)...)
	case "can_append", "can_swap_out", "can_swap_in", "swap_out", "swap_in":
		p.playGroup(op, r)
	default:
		p.playSeq(op, r)
	}
}

func (p *v0Manager) named(ids []int) (list []*v0.Seq) {
	for _, id := range ids {
		list = append(list, &p.seqs[id].Seq)
	}
	return list
}

func (p *v0Manager) allocate(op *Op, r result) {
	list, bare := []*v0Seq{}, []*v0.Seq{}
	for _, id := range op.Seqs {
		s := &v0Seq{id: id, Seq: v0.Seq{Len: op.tokens(), Tokens: slices.Clone(op.TokenIDs)}}
		list, bare = append(list, s), append(bare, &s.Seq)
	}
	if raised(p.m.Allocate(bare[0], bare[1:]...), r) {
		return
	}
	for _, s := range list {
		p.seqs[s.id] = s
	}
	p.groups[op.GroupName] = append(p.groups[op.GroupName], list...)
	r["tables"] = tables(list)
}

func tables(list []*v0Seq) map[int][]int32 {
	all := map[int][]int32{}
	for _, s := range list {
		all[s.id] = tableOf(s.Table())
	}
	return all
}

// tableOf returns a copy of a table. The copy is never nil, so that its JSON is a list.
func tableOf(ids []int32) []int32 { return append([]int32{}, ids...) }

func (p *v0Manager) playGroup(op *Op, r result) {
	swapped := op.Name == "can_swap_in" || op.Name == "swap_in"
	list, bare := []*v0Seq{}, []*v0.Seq{}
	for _, s := range p.groups[op.GroupName] {
		if s.swapped == swapped {
			list, bare = append(list, s), append(bare, &s.Seq)
		}
	}
	switch op.Name {
	case "can_append":
		for _, s := range list {
			s.Len += op.Unseen[s.id] - s.Unseen()
		}
		r["unseen"], r["ok"] = unseen(list), p.m.CanAppend(op.LookaheadSlots, bare...)
	case "can_swap_out":
		r["unseen"], r["ok"] = unseen(list), p.m.CanSwapOut(bare...)
	case "can_swap_in":
		r["unseen"], r["status"] = unseen(list), p.m.CanSwapIn(op.LookaheadSlots, bare...).String()
	case "swap_out":
		p.swap(p.m.SwapOut, r, list, bare)
	case "swap_in":
		p.swap(p.m.SwapIn, r, list, bare)
	}
}

func unseen(list []*v0Seq) map[int]int {
	all := map[int]int{}
	for _, s := range list {
		all[s.id] = s.Unseen()
	}
	return all
}

func (p *v0Manager) swap(move func([]device.Pair, ...*v0.Seq) ([]device.Pair, error), r result, list []*v0Seq, bare []*v0.Seq) {
	pairs, err := move(nil, bare...)
	if raised(err, r) {
		return
	}
	for _, s := range list {
		s.swapped = !s.swapped
	}
	r["mapping"], r["tables"] = mapping(pairs), tables(list)
}

func mapping(pairs []device.Pair) []row {
	list := []row{}
	for _, c := range pairs {
		list = append(list, row{c.Src, c.Dst})
	}
	return list
}

func (p *v0Manager) playSeq(op *Op, r result) {
	id := op.Seq
	if op.Name == "fork" {
		id = op.Parent
	}
	s := p.seqs[id]
	switch op.Name {
	case "append":
		p.append(s, op, r)
	case "fork":
		p.fork(s, op, r)
	case "free":
		p.m.Free(&s.Seq)
		delete(p.seqs, id)
		group := op.GroupName
		p.groups[group] = slices.DeleteFunc(p.groups[group], func(o *v0Seq) bool { return o == s })
	case "slots":
		window := 0
		if op.Window != nil {
			window = *op.Window
		}
		r["start_idx"], r["slots"] = v0.Slots(s.Table(), p.m.View.Config().BlockSize, op.Context, op.Length, window, op.IsPrompt)
	default:
		unknown(op, "V0's manager")
	}
}

func (p *v0Manager) append(s *v0Seq, op *Op, r result) {
	recorded := s.Len - s.Unseen()
	s.Len = recorded + op.tokens()
	if op.TokenIDs != nil {
		s.Tokens = append(s.Tokens[:recorded:recorded], op.TokenIDs...)
	}
	var err error
	p.copies, err = p.m.Append(p.copies[:0], &s.Seq, op.LookaheadSlots, op.ComputedTokens)
	if !raised(err, r) {
		r["cows"], r["table"] = mapping(p.copies), tableOf(s.Table())
	}
}

func (p *v0Manager) fork(parent *v0Seq, op *Op, r result) {
	child := &v0Seq{id: op.Child, swapped: parent.swapped}
	child.Len, child.Tokens = parent.Len, slices.Clone(parent.Tokens)
	must(p.m.Fork(&parent.Seq, &child.Seq))
	p.seqs[op.Child] = child
	p.groups[op.GroupName] = append(p.groups[op.GroupName], child)
	r["table"] = tableOf(child.Table())
}

func (p *v0Manager) state() (gpu, cpu result) {
	g, c := p.m.View.Devices()
	gpu, cpu = deviceState(g), deviceState(c)
	if p.m.View.Config().EnablePrefixCaching {
		list := []row{}
		for _, e := range p.m.View.Evictor() {
			list = append(list, row{e.ID, e.Tokens, e.Access})
		}
		gpu["evictor"], gpu["cached"] = list, p.m.View.Cached()
		cpu["evictor"], cpu["cached"] = row{}, row{}
	}
	return gpu, cpu
}

func deviceState(d *device.Device) result {
	refs := map[int]int32{}
	for i, count := range d.Counts() {
		if count > 0 {
			refs[int(d.First())+i] = count
		}
	}
	return result{"free_order": slices.AppendSeq([]int32{}, d.Free()), "refs": refs}
}
