package replay

import (
	"errors"
	"fmt"
	"slices"

	"llmmemory/internal/scheduling/device"
	"llmmemory/internal/scheduling/vllm/v0"
)

// v0Manager plays the recordings of vLLM V0's block manager.
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

func newV0Manager(c *Init) (*v0Manager, error) {
	m, err := v0.New(v0Config(c))
	if err != nil {
		return nil, err
	}
	if c.WindowCap != nil && *c.WindowCap != m.View.WindowBlocks() {
		return nil, fmt.Errorf("a window has %d blocks, the recording says %d", m.View.WindowBlocks(), *c.WindowCap)
	}
	return &v0Manager{m: m, seqs: map[int]*v0Seq{}, groups: map[name][]*v0Seq{}}, c.sameWatermark(m.View.Watermark())
}

// sameWatermark compares the watermark with the recording's.
func (c *Init) sameWatermark(blocks int) error {
	if c.Reserved != nil && *c.Reserved != blocks {
		return fmt.Errorf("the watermark is %d blocks, the recording says %d", blocks, *c.Reserved)
	}
	return nil
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

// raised records ErrNoFreeBlocks as vLLM's exception.
func raised(err error, r result) error {
	if errors.Is(err, v0.ErrNoFreeBlocks) {
		r["error"] = "NoFreeBlocks"
		return nil
	}
	return err
}

func (p *v0Manager) play(op *Op, r result) error {
	switch op.Name {
	case "can_allocate":
		r["status"] = p.m.CanAllocate(op.tokens(), op.LookaheadSlots).String()
	case "allocate":
		return p.allocate(op, r)
	case "mark_computed":
		p.m.MarkComputed()
	case "state":
		r["gpu"], r["cpu"] = p.state()
	case "access":
		p.m.Access(op.Now, p.named(op.Seqs)...)
	case "common_computed":
		r["ids"] = p.m.Computed([]int32{}, p.named(op.Seqs)...)
	case "can_append", "can_swap_out", "can_swap_in", "swap_out", "swap_in":
		return p.playGroup(op, r)
	default:
		return p.playSeq(op, r)
	}
	return nil
}

func (p *v0Manager) named(ids []int) (list []*v0.Seq) {
	for _, id := range ids {
		list = append(list, &p.seqs[id].Seq)
	}
	return list
}

func (p *v0Manager) allocate(op *Op, r result) error {
	list, bare := []*v0Seq{}, []*v0.Seq{}
	for _, id := range op.Seqs {
		s := &v0Seq{id: id, Seq: v0.Seq{Len: op.tokens(), Tokens: slices.Clone(op.TokenIDs)}}
		list, bare = append(list, s), append(bare, &s.Seq)
	}
	if err := p.m.Allocate(bare[0], bare[1:]...); err != nil {
		return raised(err, r)
	}
	for _, s := range list {
		p.seqs[s.id] = s
	}
	p.groups[op.GroupName] = append(p.groups[op.GroupName], list...)
	r["tables"] = tables(list)
	return nil
}

func tables(list []*v0Seq) map[int][]int32 {
	all := map[int][]int32{}
	for _, s := range list {
		all[s.id] = tableOf(s.Table())
	}
	return all
}

// tableOf returns a copy of a table that is never nil, so that JSON shows a list.
func tableOf(ids []int32) []int32 { return append([]int32{}, ids...) }

// playGroup plays an operation on the running or the swapped sequences of a group.
func (p *v0Manager) playGroup(op *Op, r result) error {
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
	default:
		return p.swap(op, r, list, bare)
	}
	return nil
}

func unseen(list []*v0Seq) map[int]int {
	all := map[int]int{}
	for _, s := range list {
		all[s.id] = s.Unseen()
	}
	return all
}

func (p *v0Manager) swap(op *Op, r result, list []*v0Seq, bare []*v0.Seq) error {
	move := p.m.SwapOut
	if op.Name == "swap_in" {
		move = p.m.SwapIn
	}
	pairs, err := move(nil, bare...)
	if err != nil {
		return raised(err, r)
	}
	for _, s := range list {
		s.swapped = !s.swapped
	}
	r["mapping"], r["tables"] = mapping(pairs), tables(list)
	return nil
}

func mapping(pairs []device.Pair) []row {
	list := []row{}
	for _, c := range pairs {
		list = append(list, row{c.Src, c.Dst})
	}
	return list
}

// playSeq plays an operation on one sequence.
func (p *v0Manager) playSeq(op *Op, r result) error {
	id := op.Seq
	if op.Name == "fork" {
		id = op.Parent
	}
	s := p.seqs[id]
	switch op.Name {
	case "append":
		return p.append(s, op, r)
	case "fork":
		return p.fork(s, op, r)
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
		start := v0.SlotStart(op.IsPrompt, op.Length-op.Context, window)
		r["start_idx"] = start
		r["slots"] = v0.AppendSlots([]int64{}, s.Table(), p.m.View.Config().BlockSize, op.Context, op.Length, start)
	default:
		return fmt.Errorf("there is no operation %q in a recording of V0's manager", op.Name)
	}
	return nil
}

func (p *v0Manager) append(s *v0Seq, op *Op, r result) error {
	recorded := s.Len - s.Unseen()
	s.Len = recorded + op.tokens()
	if op.TokenIDs != nil {
		s.Tokens = append(s.Tokens[:recorded:recorded], op.TokenIDs...)
	}
	var err error
	p.copies, err = p.m.Append(p.copies[:0], &s.Seq, op.LookaheadSlots, op.ComputedTokens)
	if err != nil {
		return raised(err, r)
	}
	r["cows"], r["table"] = mapping(p.copies), tableOf(s.Table())
	return nil
}

func (p *v0Manager) fork(parent *v0Seq, op *Op, r result) error {
	child := &v0Seq{id: op.Child, swapped: parent.swapped}
	child.Len, child.Tokens = parent.Len, slices.Clone(parent.Tokens)
	if err := p.m.Fork(&parent.Seq, &child.Seq); err != nil {
		return err
	}
	p.seqs[op.Child] = child
	p.groups[op.GroupName] = append(p.groups[op.GroupName], child)
	r["table"] = tableOf(child.Table())
	return nil
}

// state returns the fields of a state operation for both devices.
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
