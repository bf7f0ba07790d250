package compare

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"unsafe"

	"llmmemory/internal/course"
	"llmmemory/internal/course/oracle"
)

// The sizes of the submission's allocations, as in llm_memory.h.
const (
	engineSize   = uint64(unsafe.Sizeof(course.Engine{}))
	sequenceSize = uint64(unsafe.Sizeof(course.Sequence{}))
	l1Size       = uint64(unsafe.Sizeof(course.L1Table{}))
	l2Size       = uint64(unsafe.Sizeof(course.L2Table{}))
	activeOffset = uint64(unsafe.Offsetof(course.Engine{}.Active))
	nodeOffset   = uint64(unsafe.Offsetof(course.Sequence{}.Node))
)

func i32(b []byte, at uintptr) int32  { return int32(binary.NativeEndian.Uint32(b[at:])) }
func u64(b []byte, at uintptr) uint64 { return binary.NativeEndian.Uint64(b[at:]) }

// engine compares engine i and everything that its pointers lead to.
func (p *player) engine(i int) *Difference {
	want := p.expected.Engines[i]
	if want == nil {
		return p.pool(i)
	}
	e := p.chunk(p.engines[i], engineSize)
	if e == nil {
		return differs(Engine, "engine", "an allocation of 40 bytes", "no such allocation")
	}
	if got := u64(e, unsafe.Offsetof(want.Pool)); got != p.pools[i]+oracle.Slack {
		return differs(Engine, "engine->pool_base_ptr", "the pool", fmt.Sprintf("%#x", got))
	}
	if got := i32(e, unsafe.Offsetof(want.Total)); got != want.Total {
		return differs(Engine, "engine->total_local_blocks", want.Total, got)
	}
	if d := p.counts(want, e); d != nil {
		return d
	}
	if got := i32(e, unsafe.Offsetof(want.Free)); got != want.Free {
		return differs(Engine, "engine->free_local_blocks", want.Free, got)
	}
	if d := p.list(want, p.engines[i]); d != nil {
		return d
	}
	return p.pool(i)
}

func (p *player) counts(want *course.Engine, e []byte) *Difference {
	got := p.chunk(u64(e, unsafe.Offsetof(want.RefCount)), 4*uint64(want.Total))
	if got == nil {
		return differs(Counts, "engine->ref_count", fmt.Sprintf("an allocation of %d bytes", 4*want.Total), "none of that size")
	}
	counts := unsafe.Slice(want.RefCount, want.Total)
	for _, some := range looked(want.Total) {
		for block := some[0]; block < some[1]; block++ {
			if have := i32(got, 4*uintptr(block)); have != counts[block] {
				return differs(Counts, fmt.Sprintf("engine->ref_count[%d]", block), counts[block], have)
			}
		}
	}
	return nil
}

// list walks both lists forward together and compares each link back.
func (p *player) list(want *course.Engine, engine uint64) *Difference {
	head := engine + activeOffset
	names := map[uint64]string{0: "NULL", head: "the dummy head"}
	name := func(node uint64) string {
		if _, known := names[node]; !known && p.chunk(node-nodeOffset, sequenceSize) != nil {
			names[node] = fmt.Sprintf("sequence %d", i32(p.chunk(node-nodeOffset, sequenceSize), idOffset))
		}
		return cmp.Or(names[node], fmt.Sprintf("%#x, which is no node", node))
	}
	// broken returns the difference for a pointer that leads to no node.
	broken := func(pointer string, node uint64, expected string, actual uint64) *Difference {
		d := differs(List, fmt.Sprintf("the %s pointer of %s", pointer, name(node)), expected, name(actual))
		d.Shape = pointer
		return d
	}
	link := func(node uint64) []byte {
		if node == head {
			return p.subject.At(node, 16)
		}
		if s := p.chunk(node-nodeOffset, sequenceSize); s != nil {
			return s[nodeOffset:]
		}
		return nil
	}
	before, position := head, 1
	for n := want.Active.Next; ; n, position = n.Next, position+1 {
		node := u64(link(before), 8)
		next := "the dummy head"
		if n != &want.Active {
			next = fmt.Sprintf("sequence %d", sequenceOf(n).ID)
		}
		at := link(node)
		if at == nil || (n == &want.Active) != (node == head) {
			return broken("next", before, next, node)
		}
		if back := u64(at, 0); back != before {
			return broken("prev", node, name(before), back)
		}
		if n == &want.Active {
			return nil
		}
		if d := p.sequence(sequenceOf(n), p.subject.At(node-nodeOffset, sequenceSize), position); d != nil {
			d.sequence = sequenceOf(n).ID
			return d
		}
		before = node
	}
}

func sequenceOf(n *course.Node) *course.Sequence {
	return (*course.Sequence)(unsafe.Add(unsafe.Pointer(n), -int(nodeOffset)))
}

// sequence compares the sequence at a place of the list.
func (p *player) sequence(want *course.Sequence, got []byte, place int) *Difference {
	if id := i32(got, unsafe.Offsetof(want.ID)); id != want.ID {
		return differs(List, fmt.Sprintf("place %d of the list", place),
			fmt.Sprintf("sequence %d", want.ID), fmt.Sprintf("sequence %d", id))
	}
	name := func(field string) string { return fmt.Sprintf("sequence %d: %s", want.ID, field) }
	if n := i32(got, unsafe.Offsetof(want.KVCount)); n != want.KVCount {
		return differs(Sequence, name("kv_count"), want.KVCount, n)
	}
	l1 := p.chunk(u64(got, unsafe.Offsetof(want.BlockTable)), l1Size)
	if l1 == nil {
		return differs(Sequence, name("block_table"), "an allocation of 128 bytes", "none of that size")
	}
	for i, l2 := range want.BlockTable {
		address := u64(l1, uintptr(8*i))
		field := func() string { return name(fmt.Sprintf("block_table[%d]", i)) }
		if (l2 == nil) != (address == 0) {
			d := differs(Sequence, field(), pointer(l2 != nil), pointer(address != 0))
			if l2 == nil && p.chunk(address, l2Size) != nil {
				d.Actual, d.Facts = "an L2 table", []Fact{ExtraTable}
			}
			return d
		}
		if l2 == nil {
			continue
		}
		table := p.chunk(address, l2Size)
		if table == nil {
			return differs(Sequence, field(), "an allocation of 64 bytes", "none of that size")
		}
		for j, id := range l2 {
			if have := i32(table, uintptr(4*j)); have != id {
				return differs(Sequence, fmt.Sprintf("%s[%d]", field(), j), id, have)
			}
		}
	}
	return nil
}

func (p *player) pool(i int) *Difference {
	if p.isLarge(i) {
		return p.largePool(i)
	}
	want := p.expected.Pools[i]
	got := p.subject.At(p.pools[i], uint64(len(want)))
	if bytes.Equal(want, got) {
		return nil
	}
	at := 0
	for at < len(want)-1 && want[at] == got[at] { // it may be equal by now: the process can write at any time
		at++
	}
	at -= oracle.Slack
	field := fmt.Sprintf("byte %d of the pool (block %d, record %d)", at, at/course.BlockSize, at%course.BlockSize/course.KVSize)
	if at < 0 || at >= len(want)-2*oracle.Slack {
		field = fmt.Sprintf("byte %d, outside the pool", at)
	}
	d := differs(Pool, field, fmt.Sprintf("%#02x", want[at+oracle.Slack]), fmt.Sprintf("%#02x", got[at+oracle.Slack]))
	d.byteAt = int64(at)
	return d
}
