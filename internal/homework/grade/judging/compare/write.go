package compare

import (
	"llmmemory/internal/homework/course"
	"llmmemory/internal/homework/course/oracle"
	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/isolation/runner"
)

func (p *player) write(changes []oracle.Change) error {
	defer func() { p.made = made{} }()
	for _, c := range changes {
		if err := p.change(c); err != nil {
			return err
		}
	}
	return nil
}

func (p *player) change(c oracle.Change) error {
	switch c.Kind {
	case oracle.NewEngine:
		return p.newEngine(c)
	case oracle.DropEngine:
		p.made = made{}
		p.dropEngine(c.Engine)
		return nil
	case oracle.NewSequence:
		return p.newSequence(c)
	case oracle.Recorded:
		record := p.pools[c.Engine] + oracle.Slack + uint64(c.A)*course.BlockSize + uint64(c.B)*course.KVSize
		*view[int32](p, record) = c.C
		return nil
	}
	address := p.address(c.Engine, c.A)
	s := view[sequenceStruct](p, address)
	l1 := view[l1Table](p, s.blockTable)
	switch c.Kind {
	case oracle.DropSequence, oracle.Unlinked, oracle.Renamed:
		p.made = made{}
	}
	switch c.Kind {
	case oracle.DropSequence:
		p.dropSequence(c.Engine, address)
	case oracle.Unlinked:
		p.unlink(address)
	case oracle.Renamed:
		s.id = c.B
	case oracle.Counted:
		s.kvCount = c.B
	case oracle.NewTable:
		return p.newTables(l1, c.B, c.B)
	case oracle.Moved:
		l1[c.B], l1[c.C] = l1[c.C], l1[c.B]
	case oracle.Relocated:
		return p.relocated(c, s, l1)
	case oracle.Mapped:
		if err := p.newTables(l1, c.B/course.L2Size, (c.B+c.N-1)/course.L2Size); err != nil {
			return err
		}
		for i := range c.N {
			p.entry(c.Engine, l1, c.B+i, c.C+i)
		}
	case oracle.Unmapped:
		p.entry(c.Engine, l1, c.B, -1)
	}
	return nil
}

// entry maps a table entry to a block or, if the block is negative, unmaps the entry. It also updates the block's
// reference count and the number of free blocks.
func (p *player) entry(engine int, l1 *l1Table, logical, block int32) {
	entry := &view[course.L2Table](p, l1[logical/course.L2Size])[logical%course.L2Size]
	counted, delta := block, int32(1)
	if block < 0 {
		counted, delta = *entry, -1
	}
	e := view[engineStruct](p, p.engines[engine])
	count := view[int32](p, e.refCount+4*uint64(counted))
	before := *count
	*count = before + delta
	if before == 0 || before+delta == 0 {
		e.free -= delta
	}
	*entry = block
}

const maxStock = 64 // chunks of one size that are requested at a time, if no more are needed

// allocate returns the addresses of n allocations from the submission's allocator. If the allocations are small, it
// may request more than n and store the rest in p.stock, because each request costs two context switches. An address is
// 0 if the heap is full.
func (p *player) allocate(n int, size uint64) ([]uint64, error) {
	stock := p.stock[size]
	if len(stock) < n {
		want := n
		if size <= l1Size {
			want = max(n, min(maxStock, 2*p.asked[size]))
		}
		fresh, err := p.take(want-len(stock), size)
		if err != nil {
			return nil, err
		}
		stock = append(stock, fresh...)
	}
	for len(stock) < n { // the heap is full: address 0 reads as zeros
		stock = append(stock, 0)
	}
	p.stock[size] = stock[n:]
	p.asked[size] += n
	for _, address := range stock[:n] {
		if address != 0 {
			p.add(address, size)
		}
	}
	return stock[:n:n], nil
}

// take requests n allocations from the submission's allocator. It returns fewer if the heap is full.
func (p *player) take(n int, size uint64) (all []uint64, err error) {
	reply, err := p.subject.Do(runner.Request{Call: runner.Allocate, A: int32(n), Size: size})
	for _, e := range reply.Events {
		if e.At != 0 {
			all = append(all, e.At)
		}
	}
	return all, err
}

// release frees a chunk before the submission's next call.
func (p *player) release(address uint64) {
	delete(p.live, address)
	p.released = append(p.released, address)
}

func (p *player) newEngine(c oracle.Change) error {
	init := trace.Op{Kind: trace.Init, Engine: c.Engine, A: c.A, B: c.B}
	pool, err := p.newPool(init)
	if err != nil {
		return err
	}
	if _, err := p.subject.Do(runner.Request{Call: runner.Open, Engine: pool, Size: uint64(init.Pool())}); err != nil {
		return err
	}
	total := int32(init.Pool() / course.BlockSize)
	addresses, err := p.allocate(1, engineSize)
	if err != nil {
		return err
	}
	counts, err := p.allocate(1, 4*uint64(total))
	if err != nil {
		return err
	}
	if !init.Large() { // its counts are zero already
		clear(p.subject.At(counts[0], 4*uint64(total)))
	}
	p.engines[c.Engine] = addresses[0]
	head := p.head(c.Engine)
	*view[engineStruct](p, addresses[0]) = engineStruct{pool: pool, total: total, free: total, refCount: counts[0], active: listNode{head, head}}
	return nil
}

func (p *player) dropEngine(engine int) {
	for sequence := range p.sequences(engine) {
		p.dropSequence(engine, sequence)
	}
	p.release(view[engineStruct](p, p.engines[engine]).refCount)
	p.release(p.engines[engine])
	p.engines[engine] = 0
}

func (p *player) newSequence(c oracle.Change) error {
	addresses, err := p.allocate(1, sequenceSize)
	if err != nil {
		return err
	}
	l1, err := p.allocate(1, l1Size)
	if err != nil {
		return err
	}
	*view[l1Table](p, l1[0]) = l1Table{}
	head := view[listNode](p, p.head(c.Engine))
	s := view[sequenceStruct](p, addresses[0])
	s.id, s.kvCount, s.blockTable = c.A, c.B, l1[0]
	s.node = listNode{prev: head.prev, next: p.head(c.Engine)}
	view[listNode](p, head.prev).next = addresses[0] + nodeOffset
	head.prev = addresses[0] + nodeOffset
	p.made = made{c.Engine, c.A, addresses[0]}
	return nil
}

func (p *player) newTables(l1 *l1Table, first, last int32) error {
	var slots []int32
	for slot := first; slot <= last; slot++ {
		if l1[slot] == 0 {
			slots = append(slots, slot)
		}
	}
	if len(slots) == 0 {
		return nil
	}
	addresses, err := p.allocate(len(slots), l2Size)
	if err != nil {
		return err
	}
	for i, slot := range slots {
		l2 := view[course.L2Table](p, addresses[i])
		for j := range l2 {
			l2[j] = -1
		}
		l1[slot] = addresses[i]
	}
	return nil
}

func (p *player) dropSequence(engine int, sequence uint64) {
	table := view[sequenceStruct](p, sequence).blockTable
	l1 := view[l1Table](p, table)
	p.unlink(sequence)
	for slot, l2 := range l1 {
		if l2 == 0 {
			continue
		}
		for j, block := range view[course.L2Table](p, l2) {
			if block >= 0 {
				p.entry(engine, l1, int32(slot*course.L2Size+j), -1)
			}
		}
		p.release(l2)
	}
	p.release(table)
	p.release(sequence)
}

func (p *player) unlink(sequence uint64) {
	node := view[sequenceStruct](p, sequence).node
	view[listNode](p, node.prev).next = node.next
	view[listNode](p, node.next).prev = node.prev
}

func (p *player) relocated(c oracle.Change, s *sequenceStruct, l1 *l1Table) error {
	var pointer *uint64
	size := l2Size
	switch c.B {
	case course.L1Size:
		pointer, size = &s.blockTable, l1Size
	case course.L1Size + 1:
		pointer = &view[engineStruct](p, p.engines[c.Engine]).refCount
		size = 4 * uint64(p.expected.Engines[c.Engine].Total)
	default:
		pointer = &l1[c.B]
	}
	old := *pointer
	if _, exact := p.live[old]; !exact { // NULL, or inside another allocation
		return nil
	}
	addresses, err := p.allocate(1, size)
	if err != nil {
		return err
	}
	copy(p.subject.At(addresses[0], size), p.subject.At(old, size))
	*pointer = addresses[0]
	p.release(old)
	return nil
}

// made has the address of the sequence that the grader has created last by writing to memory. With it, the next change
// of the same sequence needs no search of the list. The address is valid until the end of the step, or until the grader
// removes an engine, or removes, unlinks or renames a sequence.
type made struct {
	engine   int
	id       int32
	sequence uint64 // 0: none
}

// address returns the address of the sequence with an id, or 0 if it is not found in the submission's list.
func (p *player) address(engine int, id int32) uint64 {
	if p.made.sequence != 0 && p.made.engine == engine && p.made.id == id {
		return p.made.sequence
	}
	for address, s := range p.sequences(engine) {
		if s.id == id {
			return address
		}
	}
	return 0
}
