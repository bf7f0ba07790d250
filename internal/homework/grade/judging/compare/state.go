package compare

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"llmmemory/internal/homework/course"
	"llmmemory/internal/homework/course/oracle"
	"llmmemory/internal/homework/course/trace"
)

func (p *player) engine(i int) *Difference {
	want := p.expected.Engines[i]
	if want == nil {
		return p.pool(i)
	}
	e := checked[engineStruct](p, p.engines[i])
	if e == nil {
		return differs(Engine, "engine", "an allocation of 40 bytes", p.pointee(p.engines[i]))
	}
	if got := e.pool; got != p.pools[i]+oracle.Slack {
		return differs(Engine, "engine->pool_base_ptr", "the pool", p.pointee(got))
	}
	if got := e.total; got != want.Total {
		d := differs(Engine, "engine->total_local_blocks", want.Total, got)
		if p.isLarge(i) && got < 0 {
			d.Actual += " (pool_size does not fit in an int)"
		}
		return d
	}
	if d := p.counts(want, e); d != nil {
		return d
	}
	if got := e.free; got != want.Free {
		return differs(Engine, "engine->free_local_blocks", want.Free, got)
	}
	if d := p.list(want, i); d != nil {
		return d
	}
	return p.pool(i)
}

func (p *player) counts(want *course.Engine, e *engineStruct) *Difference {
	got := p.refCounts(e.refCount, want.Total)
	if got == nil {
		return differs(Counts, "engine->ref_count", fmt.Sprintf("an allocation of %d bytes", 4*want.Total), p.pointee(e.refCount))
	}
	counts := oracle.Counts(want)
	for _, some := range looked(want.Total) {
		for block := some[0]; block < some[1]; block++ {
			if have := got[block]; have != counts[block] {
				return differs(Counts, fmt.Sprintf("engine->ref_count[%d]", block), counts[block], have)
			}
		}
	}
	return nil
}

// list walks both lists forward together and compares each link back.
func (p *player) list(want *course.Engine, engine int) *Difference {
	head := p.head(engine)
	names := map[uint64]string{0: "NULL", head: "the dummy head"}
	name := func(node uint64) string {
		if s := checked[sequenceStruct](p, node-nodeOffset); s != nil && names[node] == "" {
			names[node] = SequenceName(s.id)
		}
		if names[node] == "" {
			return strings.Replace(p.pointee(node), "which is no allocation", "which is no node", 1)
		}
		return names[node]
	}
	// broken returns the difference for a wrong next or prev pointer. node is the list node that has the pointer.
	broken := func(pointer string, node uint64, expected string, actual uint64) *Difference {
		d := differs(List, fmt.Sprintf("the %s pointer of %s", pointer, name(node)), expected, name(actual))
		d.Shape = pointer
		return d
	}
	before, links, position := head, view[listNode](p, head), 1
	for expected := range want.Sequences {
		node := links.next
		s := checked[sequenceStruct](p, node-nodeOffset)
		if s == nil || node == head {
			return broken("next", before, fmt.Sprintf("sequence %d", expected.ID), node)
		}
		if backLink := s.node.prev; backLink != before {
			return broken("prev", node, name(before), backLink)
		}
		if d := p.sequence(expected, s, position); d != nil {
			d.sequence = expected.ID
			return d
		}
		before, links, position = node, &s.node, position+1
	}
	if links.next != head {
		return broken("next", before, "the dummy head", links.next)
	}
	if backLink := view[listNode](p, head).prev; backLink != before {
		return broken("prev", head, name(before), backLink)
	}
	return nil
}

func (p *player) sequence(want *course.Sequence, got *sequenceStruct, place int) *Difference {
	if id := got.id; id != want.ID {
		return differs(List, fmt.Sprintf("place %d of the list", place),
			SequenceName(want.ID), SequenceName(id))
	}
	name := func(field string) string { return fmt.Sprintf("sequence %d: %s", want.ID, field) }
	if n := got.kvCount; n != want.KVCount {
		return differs(Sequence, name("kv_count"), want.KVCount, n)
	}
	l1 := checked[l1Table](p, got.blockTable)
	if l1 == nil {
		return differs(Sequence, name("block_table"), "an allocation of 128 bytes", p.pointee(got.blockTable))
	}
	for i, l2 := range want.BlockTable {
		address := l1[i]
		field := func() string { return name(fmt.Sprintf("block_table[%d]", i)) }
		table := checked[course.L2Table](p, address)
		switch {
		case l2 == nil && address == 0:
			continue
		case l2 == nil || address == 0:
			d := differs(Sequence, field(), pointer(l2 != nil), pointer(address != 0))
			switch {
			case table != nil:
				d.Actual, d.Facts = "an L2 table", []Fact{ExtraTable}
			case address != 0:
				d.Actual = p.pointee(address)
			}
			return d
		case table == nil:
			return differs(Sequence, field(), "an allocation of 64 bytes", p.pointee(address))
		}
		for j, id := range l2 {
			if have := table[j]; have != id {
				d := differs(Sequence, fmt.Sprintf("%s[%d]", field(), j), id, have)
				p.misplaced(d, l1, i, j, id)
				return d
			}
		}
	}
	return nil
}

// misplaced is called for a difference in block_table[i][j], which should have block. If another entry of the same
// sequence's tables has this block, misplaced adds the position of that entry to the difference.
func (p *player) misplaced(d *Difference, l1 *l1Table, i, j int, block int32) {
	for slot, address := range l1 {
		table := checked[course.L2Table](p, address)
		if block < 0 || table == nil {
			continue
		}
		if index := slices.Index(table[:], block); index >= 0 {
			d.Actual += fmt.Sprintf(" (block %d is in block_table[%d][%d])", block, slot, index)
			if slot == j && index == i {
				d.Facts = append(d.Facts, Transposed)
			}
			return
		}
	}
}

// pool compares pool i and the slack around it. Of a large pool it compares only the two ends.
func (p *player) pool(i int) *Difference {
	size := int64(len(p.expected.Pools[i]) - 2*oracle.Slack)
	if !p.isLarge(i) {
		return p.poolBytes(i, p.pools[i], p.expected.Pools[i], size)
	}
	size = int64(p.ends[i]-p.pools[i]) - oracle.Slack + trace.End
	low := p.poolBytes(i, p.pools[i], p.expected.Ends[i][0], size)
	return cmp.Or(low, p.poolBytes(i, p.ends[i], p.expected.Ends[i][1], size))
}

func (p *player) poolBytes(i int, address uint64, want []byte, size int64) *Difference {
	got := p.subject.At(address, uint64(len(want)))
	if bytes.Equal(want, got) {
		return nil
	}
	n := 0
	for n < len(want)-1 && want[n] == got[n] { // stop at the last byte: the process may have changed it to the wanted value
		n++
	}
	offset := int64(address-p.pools[i]) - oracle.Slack + int64(n)
	field := fmt.Sprintf("byte %d of the pool (block %d, record %d)", offset, offset/course.BlockSize, offset%course.BlockSize/course.KVSize)
	if offset < 0 || offset >= size {
		field = fmt.Sprintf("byte %d, %s", offset, outsidePool)
	}
	d := differs(Pool, field, fmt.Sprintf("%#02x", want[n]), fmt.Sprintf("%#02x", got[n]))
	d.byteAt = offset
	return d
}
