package compare

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"llmmemory/internal/homework/course"
	"llmmemory/internal/homework/course/oracle"
	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/isolation/runner"
)

// A heap is the submission's live allocations.
type heap struct {
	live     map[uint64]uint64 // address to size
	ordered  []uint64          // sorted addresses; some are freed
	shapes   map[trace.Kind]*Difference
	gone     map[uint64]string   // by address: what the submission freed, with the call
	stock    map[uint64][]uint64 // by size: unused chunks
	asked    map[uint64]int      // by size: how many were needed so far
	released []uint64            // chunks to be freed before the next call
}

func newHeap() heap {
	return heap{live: map[uint64]uint64{}, shapes: map[trace.Kind]*Difference{}, gone: map[uint64]string{}, stock: map[uint64][]uint64{}, asked: map[uint64]int{}}
}

const (
	edge           = 0xfd    // fills the bytes after an allocation (grader/process/runner.c)
	maxAllocations = 1 << 16 // that the grader keeps of one call
)

// account updates the list of live allocations after a call. It returns at most one difference, which shows the first
// wrong event of the call. Three kinds of events are wrong:
//
//   - the call frees an address that is not a live allocation,
//   - the call allocates memory, although its arguments or the state of the engine require that it fails,
//   - the call makes more allocations than the grader keeps (maxAllocations).
//
// If no event is wrong, the difference shows a write after the end of an allocation, if there was one.
func (p *player) account(op trace.Op, want oracle.Outcome, going []part, events []runner.Event) []*Difference {
	var bad *Difference
	freedHere := map[uint64]bool{} // addresses that this call has freed
	allocations := 0
	for _, e := range events {
		if e.What != runner.Release {
			allocations++
		}
		if allocations > maxAllocations+18*int(want.Made) {
			bad = cmp.Or(bad, differs(Heap, "the allocations of one call", "at most 18", fmt.Sprintf("more than %d", maxAllocations)))
			break
		}
		switch e.What {
		case runner.Release:
			p.gone[e.At], freedHere[e.At] = p.freed(op, going, e), true
			delete(p.live, e.At)
		case runner.BadRelease:
			description := "an address that is no allocation"
			if e.Size != 0 {
				description = cmp.Or(p.gone[e.At], "an allocation that was freed already")
				if freedHere[e.At] {
					description = strings.Replace(description, op.Kind.Function(), "this call", 1)
				}
			} else if slices.Contains(p.pools[:], e.At-oracle.Slack) {
				description = ThePool
			}
			d := differs(Heap, Frees, "a live allocation", description)
			if op.Engine != trace.None && e.At == p.engines[op.Engine]+activeOffset {
				d.Actual, d.Facts = "&engine->active_seqs, the dummy head", []Fact{DummyHead}
			}
			bad = cmp.Or(bad, d)
		case runner.Malloc, runner.Calloc, runner.Realloc:
			p.add(e.At, e.Size)
			fallthrough
		default:
			if want.Refused() && !want.OutOfMemory() {
				bad = cmp.Or(bad, differs(Heap, Allocates, "none", fmt.Sprintf("%d bytes", e.Size)))
			}
		}
	}
	if bad = cmp.Or(bad, p.edges(op)); bad == nil {
		return nil
	}
	return []*Difference{bad}
}

func (p *player) freed(op trace.Op, going []part, e runner.Event) string {
	description := fmt.Sprintf("an allocation of %d bytes", e.Size)
	if i := slices.IndexFunc(going, func(c part) bool { return c.address == e.At }); i >= 0 {
		description = going[i].String()
	}
	return fmt.Sprintf("%s, which %s has freed before", description, op.Kind.Function())
}

func (h *heap) add(address, size uint64) {
	h.live[address] = size
	if n := len(h.ordered); n > 2*len(h.live)+64 {
		h.ordered = slices.DeleteFunc(h.ordered, func(address uint64) bool { _, live := h.live[address]; return !live })
	}
	if n := len(h.ordered); n == 0 || h.ordered[n-1] < address {
		h.ordered = append(h.ordered, address)
	} else if i, found := slices.BinarySearch(h.ordered, address); !found { // from the stock, or a forged event
		h.ordered = slices.Insert(h.ordered, i, address)
	}
}

// containing returns the live allocation that contains an address. found is false if there is none.
func (h *heap) containing(address uint64) (start, size uint64, found bool) {
	if size, found := h.live[address]; found {
		return address, size, true
	}
	i, _ := slices.BinarySearch(h.ordered, address)
	for i--; i >= 0; i-- {
		if size, live := h.live[h.ordered[i]]; live {
			return h.ordered[i], size, address-h.ordered[i] < size
		}
	}
	return 0, 0, false
}

// chunk returns size bytes of the submission's memory, or nil if they are not inside one live allocation.
func (p *player) chunk(address, size uint64) []byte {
	start, chunkSize, found := p.containing(address)
	if !found || address-start+size > chunkSize {
		return nil
	}
	return p.subject.At(address, size)
}

// maxEdges limits the time that a call needs to check the fill bytes behind the allocations. All are checked after
// llm_destroy and after a step of many calls. After another call, only those at the last maxEdges addresses of
// heap.ordered are checked, which are usually the newest.
const maxEdges = 1 << 15

// edges checks the fill bytes after the end of each live allocation, or only of the newest ones (maxEdges). It
// returns the first difference.
func (p *player) edges(op trace.Op) (first *Difference) {
	start := max(0, len(p.ordered)-maxEdges)
	if op.Kind == trace.Destroy || op.Kind.Many() {
		start = 0
	}
	for _, chunk := range p.ordered[start:] {
		size, live := p.live[chunk]
		if !live {
			continue
		}
		if n, b := p.edge(chunk, size); n >= 0 && first == nil {
			first = p.writeOutside(chunk, size, uint64(n), b)
		}
	}
	return first
}

// edge checks the fill bytes after the end of an allocation. It returns the index and the value of the first byte
// that was overwritten; the index is -1 if none was. edge writes the fill bytes again, so that a write of the
// submission is reported only once.
func (p *player) edge(address, size uint64) (n int, b byte) {
	chunk := (size+15)/16*16 + 16 // as get_aligned in grader/process/runner.c
	bytes := p.subject.At(address+size, chunk-size)
	n = slices.IndexFunc(bytes, func(b byte) bool { return b != edge })
	if n < 0 {
		return n, 0
	}
	b = bytes[n]
	for i := range bytes {
		bytes[i] = edge
	}
	return n, b
}

// keeps returns the difference for a call that changed the number of live allocations by got, and should have changed
// it by want.
func keeps(want, got int) *Difference {
	d := differs(Heap, Keeps, change(want), change(got))
	if want == 0 {
		d.Expected = "as many as before"
	}
	return d
}

func change(n int) string {
	word := "more"
	if n < 0 {
		n, word = -n, "fewer"
	}
	switch n {
	case 0:
		return "as many allocations as before"
	case 1:
		return fmt.Sprintf("1 allocation %s than before", word)
	}
	return fmt.Sprintf("%d allocations %s than before", n, word)
}

// A part is a chunk of an engine or a sequence.
type part struct {
	address  uint64
	purpose  piece
	sequence int32 // id of the sequence
}

// A piece is the purpose of an allocation: one of the constants or, for an L2 table, its slot in the L1 table.
type piece int

const (
	theEngine piece = iota + course.L1Size
	theCounts
	theStruct
	theL1
)

func (c part) isTable() bool   { return c.purpose < course.L1Size }
func (c part) isEngines() bool { return c.purpose == theEngine || c.purpose == theCounts }

func (c part) String() string {
	switch c.purpose {
	case theEngine:
		return "the engine"
	case theCounts:
		return "engine->ref_count"
	case theStruct:
		return "the struct of " + SequenceName(c.sequence)
	case theL1:
		return "block_table of " + SequenceName(c.sequence)
	}
	return fmt.Sprintf("block_table[%d] of %s", c.purpose, SequenceName(c.sequence))
}

// going returns the chunks that free_sequence or llm_destroy must free.
func (p *player) going(op trace.Op) []part {
	if op.Engine == trace.None || p.engines[op.Engine] == 0 {
		return nil
	}
	var all []part
	seen := map[uint64]bool{}
	add := func(address uint64, purpose piece, sequence int32) {
		if start, _, found := p.containing(address); found && !seen[start] {
			seen[start] = true
			all = append(all, part{start, purpose, sequence})
		}
	}
	switch op.Kind {
	case trace.Free:
		p.parts(p.address(op.Engine, op.A), add)
	case trace.Destroy:
		add(p.engines[op.Engine], theEngine, 0)
		add(view[engineStruct](p, p.engines[op.Engine]).refCount, theCounts, 0)
		for sequence := range p.sequences(op.Engine) {
			p.parts(sequence, add)
		}
	}
	return all
}

func (p *player) parts(sequence uint64, add func(address uint64, kind piece, sequence int32)) {
	if sequence == 0 {
		return
	}
	s := view[sequenceStruct](p, sequence)
	add(sequence, theStruct, s.id)
	add(s.blockTable, theL1, s.id)
	for slot, l2 := range view[l1Table](p, s.blockTable) {
		if l2 != 0 {
			add(l2, piece(slot), s.id)
		}
	}
}

func (p *player) balance(op trace.Op, going []part, want, got int) *Difference {
	if op.Kind == trace.Free || op.Kind == trace.Destroy {
		if d := p.leaked(going); d != nil && want != 0 {
			return d
		}
		if len(p.shapes) > 0 || got == want {
			return nil
		}
		return keeps(want, got)
	}
	if _, deviates := p.shapes[op.Kind.Single()]; deviates || got == want || op.Kind == trace.Frees && len(p.shapes) > 0 {
		return nil
	}
	return keeps(want, got)
}

// leaked returns a difference if an allocation that the call had to free is still live, otherwise nil.
func (p *player) leaked(going []part) *Difference {
	var left []part
	tables, bytes := 0, uint64(0) // tables that were freed, bytes that were not
	for _, c := range going {
		size, live := p.live[c.address]
		switch {
		case live:
			left, bytes = append(left, c), bytes+size
		case c.isTable():
			tables++
		}
	}
	if len(left) == 0 {
		return nil
	}
	description := fmt.Sprintf("%s: an allocation of %d bytes", left[0], bytes)
	if len(left) > 1 {
		description = fmt.Sprintf("%s and others: %d allocations of %d bytes in all", left[0], len(left), bytes)
	}
	d := differs(Heap, Leaks, "nothing", description)
	if !slices.ContainsFunc(left, func(c part) bool { return !c.isEngines() }) {
		d.Facts = append(d.Facts, OfEngine)
	}
	if !slices.ContainsFunc(left, func(c part) bool { return !c.isTable() }) && tables > 0 {
		d.Facts = append(d.Facts, WholeTable)
	}
	return d
}

// shape records something that is not an allocation of its own.
func (p *player) shape(kind trace.Kind, name string, address uint64) {
	if _, exact := p.live[address]; !exact && p.shapes[kind] == nil {
		p.shapes[kind] = differs(Allocations, name, "an allocation of its own", "part of another")
	}
}

func (p *player) sequenceShape(kind trace.Kind, sequence uint64) {
	p.shape(kind, "the sequence", sequence)
	l1 := view[sequenceStruct](p, sequence).blockTable
	p.shape(kind, "block_table", l1)
	for slot, l2 := range view[l1Table](p, l1) {
		if l2 != 0 {
			p.shape(kind, fmt.Sprintf("block_table[%d]", slot), l2)
		}
	}
}
