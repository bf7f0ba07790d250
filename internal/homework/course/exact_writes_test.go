package course

import (
	"maps"
	"slices"
	"unsafe"

	"pgregory.net/rapid"
)

func (g *game) writeBoth(write func(w *world)) {
	write(&g.ours)
	write(&g.theirs)
}

func (g *game) pickSequence() int {
	var names []int
	for i, s := range g.theirs.seqs {
		if s != nil {
			names = append(names, i)
		}
	}
	if len(names) == 0 {
		return -1
	}
	return rapid.SampledFrom(names).Draw(g.T, "written sequence")
}

func (g *game) writeTable() {
	i := g.pickSequence()
	if i < 0 || g.theirs.seqs[i].BlockTable == nil {
		return
	}
	engine := g.home[i]
	l1Slot := rapid.IntRange(0, L1Size-1).Draw(g.T, "L1")
	for k := 0; k < L1Size && g.theirs.seqs[i].BlockTable[l1Slot] == nil; k++ {
		l1Slot = (l1Slot + 1) % L1Size
	}
	otherSlot := rapid.IntRange(0, L1Size-1).Draw(g.T, "L1 to")
	slot := rapid.IntRange(0, L2Size-1).Draw(g.T, "L2")
	if g.theirs.seqs[i].BlockTable[l1Slot] == nil {
		return
	}
	kind := rapid.IntRange(0, 6).Draw(g.T, "table write")
	value := rapid.SampledFrom([]int32{-1, 0, 5, blocks - 1, blocks, blocks + 9, -2, -1 << 31, 1<<31 - 1}).Draw(g.T, "entry")
	g.writeBoth(func(w *world) {
		e, table := w.engines[engine], w.seqs[i].BlockTable
		entry := &table[l1Slot][slot]
		switch kind {
		case 0: // another L1 slot
			table[l1Slot], table[otherSlot] = table[otherSlot], table[l1Slot]
		case 1, 2: // a hole, with the counts adjusted
			if id := *entry; id >= 0 && id < blocks {
				if *e.count(id)--; *e.count(id) == 0 {
					e.Free++
				}
			}
			*entry = -1
		case 3: // a hole, without
			*entry = -1
		case 4: // far away
			other := &table[l1Slot][(slot+7)%L2Size]
			*entry, *other = *other, *entry
		case 5:
			*entry = value
		case 6: // a table freed by hand
			g.dropFrom(w, unsafe.Pointer(table[l1Slot]))
			table[l1Slot] = nil
		}
	})
}

func (g *game) dropFrom(w *world, p unsafe.Pointer) {
	if w == &g.ours {
		g.arena.drop(p)
	} else {
		g.y.live--
	}
}

func (g *game) dropTables(w *world, s *Sequence) {
	if s.BlockTable == nil {
		return
	}
	for _, l2 := range s.BlockTable {
		if l2 != nil {
			g.dropFrom(w, unsafe.Pointer(l2))
		}
	}
	g.dropFrom(w, unsafe.Pointer(s.BlockTable))
	s.BlockTable = nil
}

func (g *game) writeCount() {
	engine := g.engine()
	id := rapid.Int32Range(0, blocks-1).Draw(g.T, "block")
	value := rapid.SampledFrom([]int32{0, 0, 1, 2, 3, -1, -1 << 31}).Draw(g.T, "count")
	step := rapid.SampledFrom([]int32{0, 1, -1}).Draw(g.T, "step")
	g.writeBoth(func(w *world) {
		if e := w.engines[engine]; step != 0 {
			*e.count(id) += step
		} else {
			*e.count(id) = value
		}
	})
}

func (g *game) writeFields() {
	engine, i := g.engine(), g.pickSequence()
	small := rapid.Int32Range(-3, 50).Draw(g.T, "value")
	position := rapid.SampledFrom([]int32{0, 15, 16, 255, 256, 4094, 4095, 4096, -1, -1 << 31, 1<<31 - 1}).Draw(g.T, "kv_count")
	switch field := rapid.IntRange(0, 6).Draw(g.T, "field"); field {
	case 0:
		g.writeBoth(func(w *world) { w.engines[engine].Free = small })
	case 1:
		g.writeBoth(func(w *world) { w.engines[engine].Free += small % 2 })
	case 2:
		total := rapid.SampledFrom([]int32{blocks, blocks, blocks - 5, 1, 0, -1}).Draw(g.T, "total")
		g.writeBoth(func(w *world) { w.engines[engine].Total = total })
	case 3, 4:
		if i >= 0 {
			g.writeBoth(func(w *world) { w.seqs[i].KVCount = position })
		}
	case 5:
		if i >= 0 {
			g.rename(i)
		}
	case 6:
		if i >= 0 && rapid.IntRange(0, 9).Draw(g.T, "drop table") == 0 {
			g.writeBoth(func(w *world) { g.dropTables(w, w.seqs[i]) })
		}
	}
}

// rename gives a sequence another id. Unless g.wild is set, it only does what llm_memory.h allows: no other sequence
// has the new id, and an unlinked sequence is not renamed.
func (g *game) rename(i int) {
	id := g.newID()
	if g.wild {
		id = g.id()
	}
	if !g.wild && (g.loose[i] || g.taken(id)) {
		return
	}
	g.writeBoth(func(w *world) { w.seqs[i].ID = id })
}

func (g *game) taken(id int32) bool {
	return slices.ContainsFunc(g.theirs.seqs, func(s *Sequence) bool { return s != nil && s.ID == id })
}

func (g *game) writeList() {
	i := g.pickSequence()
	if i < 0 {
		return
	}
	switch kind := rapid.IntRange(0, 5).Draw(g.T, "list write"); {
	case g.loose[i] && kind <= 3:
		g.relink(i)
	case g.loose[i]:
		g.dispose(i)
	case kind == 5 && g.wild:
		g.cut(i)
	default:
		g.unlink(i, kind)
	}
}

// unlink takes one sequence out, as list_del or list_del_init does.
func (g *game) unlink(i, variant int) {
	if n := &g.theirs.seqs[i].Node; n.Prev == nil || n.Next == nil {
		return
	}
	g.writeBoth(func(w *world) {
		n := &w.seqs[i].Node
		n.Prev.Next, n.Next.Prev = n.Next, n.Prev
		switch variant {
		case 0, 1:
			n.Prev, n.Next = n, n
		case 2:
			n.Prev, n.Next = nil, nil
		}
	})
	g.loose[i] = true
}

// relink inserts an unlinked sequence into the list of one of the engines, at any position. Unless g.wild is set, it
// only does what llm_memory.h allows: the ids in a list remain distinct, and two sequences from the other engine do
// not become neighbours.
func (g *game) relink(i int) {
	engine := g.engine()
	if !g.wild && slices.ContainsFunc(g.theirs.listed(engine), func(s *Sequence) bool { return s.ID == g.theirs.seqs[i].ID }) {
		return
	}
	position := rapid.IntRange(0, len(g.theirs.listed(engine))).Draw(g.T, "position")
	if !g.wild && engine != g.home[i] {
		list := g.linked(engine)
		if position > 0 && g.migrant[list[position-1]] || position < len(list) && g.migrant[list[position]] {
			return
		}
		g.migrant[i] = true
	}
	g.writeBoth(func(w *world) {
		before := &w.engines[engine].Active
		if list := w.listed(engine); position < len(list) {
			before = &list[position].Node
		}
		n := &w.seqs[i].Node
		n.Prev, n.Next = before.Prev, before
		before.Prev.Next = n
		before.Prev = n
	})
	delete(g.loose, i)
	g.home[i] = engine
}

// dispose frees an unlinked sequence by hand. Before that, it calls the library with the sequence's id, and with the
// ids of the unlinked sequences that have a link to this sequence. If the library has a cache entry for an
// id, the call removes it. llm_memory.h requires such calls before the memory is freed.
func (g *game) dispose(i int) {
	node := &g.theirs.seqs[i].Node
	for _, k := range slices.Sorted(maps.Keys(g.loose)) {
		if s := g.theirs.seqs[k]; s != nil && (k == i || s.Node.Prev == node || s.Node.Next == node) {
			g.append(0, s.ID, 1)
			g.append(1, s.ID, 1)
		}
	}
	g.writeBoth(func(w *world) {
		g.dropTables(w, w.seqs[i])
		g.dropFrom(w, unsafe.Pointer(w.seqs[i]))
		w.seqs[i] = nil
	})
	delete(g.loose, i)
}

func (g *game) cut(i int) {
	length := rapid.IntRange(1, 6).Draw(g.T, "stretch")
	engine := -1
	for e := range g.theirs.engines {
		if slices.Contains(g.linked(e), i) {
			engine = e
		}
	}
	if engine < 0 {
		return
	}
	list := g.linked(engine)
	index := slices.Index(list, i)
	stretch := list[index:min(index+length, len(list))]
	g.writeBoth(func(w *world) {
		first, last := &w.seqs[stretch[0]].Node, &w.seqs[stretch[len(stretch)-1]].Node
		first.Prev.Next, last.Next.Prev = last.Next, first.Prev
	})
	for _, k := range stretch {
		g.loose[k] = true
	}
}
