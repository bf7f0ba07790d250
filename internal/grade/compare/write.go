package compare

import (
	"encoding/binary"
	"iter"
	"unsafe"

	"llmmemory/internal/course"
	"llmmemory/internal/course/oracle"
	"llmmemory/internal/course/trace"
	"llmmemory/internal/grade/runner"
)

var (
	refCountOffset   = unsafe.Offsetof(course.Engine{}.RefCount)
	freeOffset       = unsafe.Offsetof(course.Engine{}.Free)
	idOffset         = unsafe.Offsetof(course.Sequence{}.ID)
	blockTableOffset = unsafe.Offsetof(course.Sequence{}.BlockTable)
)

// write makes the tester's changes in the memory of the submission, which was equal to the
// oracle's before.
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
		at := p.pools[c.Engine] + oracle.Slack + uint64(c.A)*course.BlockSize + uint64(c.B)*course.KVSize
		put32(p.view(at, course.KVSize), 0, c.C)
		return nil
	}
	address := p.address(c.Engine, c.A)
	s := p.view(address, sequenceSize)
	l1 := p.view(u64(s, blockTableOffset), l1Size)
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
		put32(s, unsafe.Offsetof(course.Sequence{}.ID), c.B)
	case oracle.Counted:
		put32(s, unsafe.Offsetof(course.Sequence{}.KVCount), c.B)
	case oracle.NewTable:
		return p.newTables(l1, c.B, c.B)
	case oracle.Moved:
		a, b := u64(l1, uintptr(8*c.B)), u64(l1, uintptr(8*c.C))
		put64(l1, uintptr(8*c.B), b)
		put64(l1, uintptr(8*c.C), a)
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

// entry sets an entry of a table and updates the reference counts.
func (p *player) entry(engine int, l1 []byte, logical, block int32) {
	l2 := p.view(u64(l1, uintptr(8*(logical/course.L2Size))), l2Size)
	at := uintptr(4 * (logical % course.L2Size))
	if block < 0 {
		p.refer(engine, i32(l2, at), -1)
	} else {
		p.refer(engine, block, 1)
	}
	put32(l2, at, block)
}

func (p *player) refer(engine int, block, by int32) {
	e := p.view(p.engines[engine], engineSize)
	count := p.view(u64(e, refCountOffset)+4*uint64(block), 4)
	before := i32(count, 0)
	put32(count, 0, before+by)
	if before == 0 || before+by == 0 {
		put32(e, freeOffset, i32(e, freeOffset)-by)
	}
}

// mostStock is how many chunks of one size are requested at a time.
const mostStock = 64

// allocate gets n chunks from the submission's allocator. It requests more small ones than
// needed, because each request costs two context switches.
func (p *player) allocate(n int, size uint64) ([]uint64, error) {
	stock := p.stock[size]
	if len(stock) < n {
		want := n
		if size <= l1Size {
			want = max(n, min(mostStock, 2*p.asked[size]))
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
	for _, at := range stock[:n] {
		if at != 0 {
			p.add(at, size)
		}
	}
	return stock[:n:n], nil
}

// take requests n chunks from the submission's allocator, which returns fewer if its heap is
// full.
func (p *player) take(n int, size uint64) (all []uint64, err error) {
	reply, err := p.subject.Do(runner.Request{Call: runner.Allocate, A: int32(n), Size: size})
	for _, e := range reply.Events {
		if e.At != 0 {
			all = append(all, e.At)
		}
	}
	return all, err
}

// release frees a chunk before the submission's next call (settle).
func (p *player) release(address uint64) {
	delete(p.live, address)
	p.released = append(p.released, address)
}

// settle frees the released chunks in one request.
func (p *player) settle() error {
	released := p.released
	p.released = p.released[:0]
	return p.subject.GiveBack(released)
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
	at, err := p.allocate(1, engineSize)
	if err != nil {
		return err
	}
	counts, err := p.allocate(1, 4*uint64(total))
	if err != nil {
		return err
	}
	if !init.Large() { // its counts are zero already
		clear(p.view(counts[0], 4*uint64(total)))
	}
	e := p.view(at[0], engineSize)
	put64(e, unsafe.Offsetof(course.Engine{}.Pool), pool)
	put32(e, unsafe.Offsetof(course.Engine{}.Total), total)
	put32(e, freeOffset, total)
	put64(e, refCountOffset, counts[0])
	put64(e, uintptr(activeOffset), at[0]+activeOffset)
	put64(e, uintptr(activeOffset)+8, at[0]+activeOffset)
	p.engines[c.Engine] = at[0]
	return nil
}

func (p *player) dropEngine(engine int) {
	for node := range p.nodes(engine) {
		p.dropSequence(engine, node-nodeOffset)
	}
	p.release(u64(p.view(p.engines[engine], engineSize), refCountOffset))
	p.release(p.engines[engine])
	p.engines[engine] = 0
}

func (p *player) newSequence(c oracle.Change) error {
	at, err := p.allocate(1, sequenceSize)
	if err != nil {
		return err
	}
	l1, err := p.allocate(1, l1Size)
	if err != nil {
		return err
	}
	clear(p.view(l1[0], l1Size))
	head := p.engines[c.Engine] + activeOffset
	last := u64(p.view(head, 16), 0)
	s := p.view(at[0], sequenceSize)
	put32(s, unsafe.Offsetof(course.Sequence{}.ID), c.A)
	put32(s, unsafe.Offsetof(course.Sequence{}.KVCount), c.B)
	put64(s, blockTableOffset, l1[0])
	put64(s, uintptr(nodeOffset), last)
	put64(s, uintptr(nodeOffset)+8, head)
	put64(p.view(last, 16), 8, at[0]+nodeOffset)
	put64(p.view(head, 16), 0, at[0]+nodeOffset)
	p.made = made{c.Engine, c.A, at[0]}
	return nil
}

// newTables makes the missing tables in the slots from first to last.
func (p *player) newTables(l1 []byte, first, last int32) error {
	var slots []int32
	for slot := first; slot <= last; slot++ {
		if u64(l1, uintptr(8*slot)) == 0 {
			slots = append(slots, slot)
		}
	}
	if len(slots) == 0 {
		return nil
	}
	at, err := p.allocate(len(slots), l2Size)
	if err != nil {
		return err
	}
	for i, slot := range slots {
		l2 := p.view(at[i], l2Size)
		for j := range l2 {
			l2[j] = 0xff // -1
		}
		put64(l1, uintptr(8*slot), at[i])
	}
	return nil
}

func (p *player) dropSequence(engine int, sequence uint64) {
	s := p.view(sequence, sequenceSize)
	table := u64(s, blockTableOffset)
	l1 := p.view(table, l1Size)
	p.unlink(sequence)
	for slot := range uintptr(course.L1Size) {
		l2 := u64(l1, 8*slot)
		if l2 == 0 {
			continue
		}
		for j := range int32(course.L2Size) {
			if i32(p.view(l2, l2Size), uintptr(4*j)) >= 0 {
				p.entry(engine, l1, int32(slot)*course.L2Size+j, -1)
			}
		}
		p.release(l2)
	}
	p.release(table)
	p.release(sequence)
}

func (p *player) unlink(sequence uint64) {
	s := p.view(sequence, sequenceSize)
	before, after := u64(s, uintptr(nodeOffset)), u64(s, uintptr(nodeOffset)+8)
	put64(p.view(before, 16), 8, after)
	put64(p.view(after, 16), 0, before)
}

// relocated moves the target of a pointer to another address.
func (p *player) relocated(c oracle.Change, s, l1 []byte) error {
	holder, place, size := l1, uintptr(8*c.B), l2Size
	switch c.B {
	case course.L1Size:
		holder, place, size = s, blockTableOffset, l1Size
	case course.L1Size + 1:
		holder, place = p.view(p.engines[c.Engine], engineSize), refCountOffset
		size = 4 * uint64(p.expected.Engines[c.Engine].Total)
	}
	old := u64(holder, place)
	if _, exact := p.live[old]; !exact { // NULL, or inside another allocation
		return nil
	}
	at, err := p.allocate(1, size)
	if err != nil {
		return err
	}
	copy(p.view(at[0], size), p.view(old, size))
	put64(holder, place, at[0])
	p.release(old)
	return nil
}

// made is the address of the sequence that the tester made last. It is valid for the changes of
// one step, until one of them removes or renames a sequence.
type made struct {
	engine   int
	id       int32
	sequence uint64 // 0: none
}

// address returns the address of a sequence, or 0 if the submission's list does not lead to it.
func (p *player) address(engine int, id int32) uint64 {
	if p.made.sequence != 0 && p.made.engine == engine && p.made.id == id {
		return p.made.sequence
	}
	for node := range p.nodes(engine) {
		if i32(p.view(node-nodeOffset, sequenceSize), unsafe.Offsetof(course.Sequence{}.ID)) == id {
			return node - nodeOffset
		}
	}
	return 0
}

// nodes yields the nodes of the submission's list, as far as they can be read. A node may be
// freed during the iteration.
func (p *player) nodes(engine int) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		head := p.engines[engine] + activeOffset
		node := u64(p.view(head, 16), 8)
		for steps := len(p.live); node != head && steps >= 0; steps-- {
			if p.chunk(node-nodeOffset, sequenceSize) == nil {
				return
			}
			next := u64(p.view(node, 16), 8)
			if !yield(node) {
				return
			}
			node = next
		}
	}
}

// view returns the bytes at an address that was checked before. The process may have changed the
// pointer since; then the bytes are zeros, and the next comparison shows it.
func (p *player) view(address, size uint64) []byte {
	if bytes := p.subject.At(address, size); bytes != nil {
		return bytes
	}
	return make([]byte, size)
}

func put32(b []byte, at uintptr, n int32) { binary.NativeEndian.PutUint32(b[at:], uint32(n)) }

func put64(b []byte, at uintptr, n uint64) { binary.NativeEndian.PutUint64(b[at:], n) }
