package grade

import (
	"cmp"
	"strings"

	"llmmemory/internal/homework/course/handout"
	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/compare"
)

// A clause gives the sentence for some differences. It matches the call, the channel, parts of
// the field and of the expected value, and facts of the call. An empty field matches everything.
type clause struct {
	kind     trace.Kind
	channel  compare.Channel
	field    string
	expected string
	facts    []compare.Fact
	sentence string
}

// when lists the facts of a clause.
func when(facts ...compare.Fact) []compare.Fact { return facts }

// refused has the sentences for calls that must fail, whatever was seen after them.
var refused = []clause{
	{trace.Init, "", "", "", when(compare.BadPool), handout.InitRefuses},
	{trace.Create, "", "", "", when(compare.BadLength), handout.CreateRefuses},
	{trace.Create, "", "", "", when(compare.ExistingID), handout.CreateRefuses},
	{trace.Create, "", "", "", when(compare.BeyondCapacity), handout.CreateProbes},
	{trace.Create, "", "", "", when(compare.NoFreeBlocks), handout.CreateProbes},
	{trace.Free, "", "", "", when(compare.UnknownID), handout.FreeNotFound},
	{trace.Fork, "", "", "", when(compare.UnknownID), handout.ForkIDs},
	{trace.Fork, "", "", "", when(compare.ExistingID), handout.ForkIDs},
	{trace.Append, "", "", "", when(compare.UnknownID), handout.AppendFinds},
	{trace.Append, "", "", "", when(compare.BeyondCapacity), handout.AppendFull},
	{trace.Append, "", "", "", when(compare.NoFreeBlocks), handout.AppendProbes},
}

// clauses has the sentences for calls that must succeed. The first match counts.
var clauses = []clause{
	{trace.Init, compare.Returned, "", "", nil, handout.InitRefuses},
	{trace.Init, compare.Engine, "free", "", nil, handout.InitFree},
	{trace.Init, compare.Engine, "pool", "", nil, handout.InitStoresPool},
	{trace.Init, compare.Engine, "", "", nil, handout.InitTotal},
	{trace.Init, compare.Counts, "", "", nil, handout.InitCounts},
	{trace.Init, compare.List, "", "", nil, handout.InitList},
	{trace.Init, compare.Heap, compare.Keeps, "", nil, handout.InitCounts},

	{trace.Create, compare.Returned, "", "", when(compare.Done), handout.CreateLinks},
	{trace.Create, compare.Returned, "pointer", "sequence", nil, handout.CreateLinks},
	{trace.Create, compare.Returned, "", "", when(compare.LastFree), handout.CreateProbes},
	{trace.Create, compare.Returned, "", "", when(compare.FullLength), handout.CreateProbes},
	{trace.Create, compare.Returned, "", "", when(compare.Long), handout.CreateProbes},
	{trace.Create, compare.Returned, "", "", nil, handout.CreateRefuses},
	{trace.Create, compare.Sequence, "][", "", when(compare.Transposed), handout.Traversal},
	{trace.Create, compare.Counts, "", "", when(compare.LastFree), handout.FirstFit},
	{trace.Create, "", "", "", when(compare.TookFewer), handout.CreateCeiling},
	{trace.Create, "", "", "", when(compare.TookMore), handout.CreateCeiling},
	{trace.Create, "", "", "", when(compare.TookOthers), handout.FirstFit},
	{trace.Create, compare.Heap, " block_table of ", "", nil, handout.CreateL1},
	{trace.Create, compare.Heap, " block_table[", "", nil, handout.CreateL2},
	{trace.Create, compare.Heap, "of 128 bytes", "", nil, handout.CreateL1},
	{trace.Create, compare.Heap, "of 64 bytes", "", nil, handout.CreateL2},
	{trace.Create, compare.Heap, compare.Keeps, "", nil, handout.CreateL2},
	{trace.Create, compare.Sequence, "kv_count", "", nil, handout.CreateLinks},
	{trace.Create, compare.Sequence, "][", "-1", nil, handout.CreateL2},
	{trace.Create, compare.Sequence, "][", "", nil, handout.CreateMaps},
	{trace.Create, compare.Sequence, "]", "not NULL", nil, handout.CreateL2},
	{trace.Create, compare.Sequence, "]", "bytes", nil, handout.CreateL2},
	{trace.Create, compare.Sequence, "]", "NULL", when(compare.ExtraTable), handout.CreateL2},
	{trace.Create, compare.Sequence, "", "", nil, handout.CreateL1},
	{trace.Create, compare.Counts, "", "", nil, handout.CreateMaps},
	{trace.Create, compare.Engine, "", "", nil, handout.CreateMaps},
	{trace.Create, compare.List, "", "", nil, handout.CreateLinks},
	{trace.Create, compare.Pool, "", "", nil, handout.CreateNoWrites},

	{trace.Free, compare.Returned, "", "", when(compare.Done), handout.FreeReturns},
	{trace.Free, compare.Returned, "", "", nil, handout.FreeDetaches},
	{trace.Free, compare.List, "", "", nil, handout.FreeDetaches},
	{trace.Free, compare.Counts, "", "", when(compare.WholeTable), handout.FreeAllSlots},
	{trace.Free, compare.Counts, "", "", nil, handout.FreeReleases},
	{trace.Free, compare.Engine, "", "", nil, handout.FreeCounts},
	{trace.Free, compare.Heap, "byte ", "", nil, handout.FreeReleases},
	{trace.Free, compare.Heap, "", "", when(compare.WholeTable), handout.FreeAllSlots},
	{trace.Free, compare.Heap, "", "", nil, handout.FreeTables},

	{trace.Fork, compare.Returned, "", "", when(compare.Done), handout.ForkLinks},
	{trace.Fork, compare.Returned, "", "sequence", nil, handout.ForkLinks},
	{trace.Fork, compare.Returned, "", "", when(compare.NoneFree), handout.ForkSame},
	{trace.Fork, compare.Returned, "", "", when(compare.Scattered), handout.ForkCopies},
	{trace.Fork, compare.Returned, "", "", nil, handout.ForkIDs},
	{trace.Fork, "", "", "", when(compare.TookMore), handout.ForkSame},
	{trace.Fork, compare.Heap, " block_table of ", "", nil, handout.ForkL1},
	{trace.Fork, compare.Heap, " block_table[", "", nil, handout.ForkCopies},
	{trace.Fork, compare.Heap, "of 128 bytes", "", nil, handout.ForkL1},
	{trace.Fork, compare.Heap, "of 64 bytes", "", nil, handout.ForkCopies},
	{trace.Fork, compare.Heap, "byte ", "", nil, handout.ForkShares},
	{trace.Fork, compare.Heap, compare.Keeps, "", when(compare.SharedL1), handout.ForkL1},
	{trace.Fork, compare.Heap, compare.Keeps, "", nil, handout.ForkCopies},
	{trace.Fork, compare.Engine, "", "", nil, handout.FreeCount},
	{trace.Fork, compare.Counts, "", "", when(compare.OtherTable), handout.ForkCopies},
	{trace.Fork, compare.Counts, "", "", nil, handout.ForkShares},
	{trace.Fork, compare.List, "", "", nil, handout.ForkLinks},
	{trace.Fork, compare.Sequence, "kv_count", "", nil, handout.ForkLinks},
	{trace.Fork, compare.Sequence, "", "", nil, handout.ForkCopies},

	{trace.Append, compare.Returned, "", "", when(compare.Done), handout.AppendIncrements},
	{trace.Append, compare.Returned, "", "", when(compare.OwnBlock, compare.NoneFree), handout.AppendExclusive},
	{trace.Append, compare.Returned, "", "", when(compare.LastFree), handout.AppendProbes},
	{trace.Append, compare.Returned, "", "", when(compare.NearLimit), handout.AppendFull},
	{trace.Append, compare.Returned, "", "", when(compare.NewTable), handout.AppendL2},
	{trace.Append, compare.Returned, "", "", when(compare.HardToFind), handout.AppendFinds},
	{trace.Append, compare.Returned, "", "", nil, handout.AppendIncrements},
	{trace.Append, compare.Sequence, "", "", when(compare.Elsewhere), handout.AppendFinds},
	{trace.Append, compare.Counts, "", "", when(compare.OtherSlot), handout.AppendPosition},
	{trace.Append, compare.Sequence, "", "", when(compare.OtherSlot), handout.AppendPosition},
	{trace.Append, compare.Counts, "", "", when(compare.OwnBlock), handout.AppendExclusive},
	{trace.Append, compare.Engine, "", "", when(compare.OwnBlock), handout.AppendExclusive},
	{trace.Append, compare.Sequence, "][", "", when(compare.OwnBlock), handout.AppendExclusive},
	{trace.Append, "", "", "", when(compare.NewPage, compare.TookFewer), handout.AppendUnmapped},
	{trace.Append, "", "", "", when(compare.SharedBlock, compare.TookFewer), handout.AppendShared},
	{trace.Append, "", "", "", when(compare.TookOthers), handout.FirstFit},
	{trace.Append, compare.Counts, "", "", when(compare.LastFree), handout.FirstFit},
	{trace.Append, compare.Heap, " block_table[", "", nil, handout.CreateL2},
	{trace.Append, compare.Heap, "of 64 bytes", "", nil, handout.CreateL2},
	{trace.Append, compare.Heap, compare.Keeps, "", nil, handout.AppendL2},
	{trace.Append, compare.Sequence, "kv_count", "", nil, handout.AppendIncrements},
	{trace.Append, compare.Sequence, "][", "-1", when(compare.NewTable), handout.CreateL2},
	{trace.Append, compare.Sequence, "][", "", when(compare.LostEntry), handout.AppendL2},
	{trace.Append, compare.Sequence, "][", "", when(compare.SharedBlock), handout.AppendRecounts},
	{trace.Append, compare.Sequence, "][", "", nil, handout.AppendMaps},
	{trace.Append, compare.Sequence, "]", "", nil, handout.AppendL2},
	{trace.Append, compare.Counts, "", "", when(compare.SharedBlock), handout.AppendRecounts},
	{trace.Append, compare.Engine, "", "", when(compare.SharedBlock), handout.AppendRecounts},
	{trace.Append, compare.Counts, "", "", nil, handout.AppendMaps},
	{trace.Append, compare.Engine, "", "", nil, handout.AppendMaps},
	{trace.Append, compare.Pool, "", "", when(compare.SharedBlock, compare.OldBlock), handout.NotDirectly},
	{trace.Append, compare.Pool, "", "", when(compare.SharedBlock, compare.Stored), handout.AppendCopies},
	{trace.Append, compare.Pool, "", "", when(compare.NewPage, compare.Stored), handout.NoMemset},
	{trace.Append, compare.Pool, "", "", nil, handout.AppendStores},

	{trace.Destroy, compare.Heap, compare.Frees, "", when(compare.DummyHead), handout.DestroyDummy},
	{trace.Destroy, compare.Heap, "", "", when(compare.OfEngine), handout.DestroyEngine},
	{trace.Destroy, compare.Heap, "", "", nil, handout.DestroyAll},
	{trace.Destroy, compare.Returned, "", "", nil, handout.DestroyReturns},
}

// deaths has the sentences for calls that end the process, where they follow from the state
// before the call.
var deaths = []clause{
	{trace.Create, "", "", "", when(compare.UnwrittenTable), handout.CreateL1},
	{trace.Create, "", "", "", when(compare.NullTable), handout.CreateMaps},
	{trace.Fork, "", "", "", when(compare.UnwrittenTable), handout.CreateL1},
	{trace.Fork, "", "", "", when(compare.NullTable), handout.ForkCopies},
	{trace.Free, "", "", "", when(compare.NullTable), handout.FreeAllSlots},
	{trace.Append, "", "", "", when(compare.UsesFreed), handout.AppendFinds}, // it frees nothing itself
	{trace.Append, "", "", "", when(compare.NullPointer), handout.Valgrind},
	{trace.Append, "", "", "", when(compare.NewTable), handout.AppendL2},
	{trace.Destroy, "", "", "", when(compare.NoSequences), handout.DestroyDummy},
	{trace.Destroy, "", "", "", nil, handout.DestroyAll},
}

// hangs has the sentences for calls that do not return, where they follow from the state before
// the call.
var hangs = []clause{
	{trace.Create, "", "", "", when(compare.NoSequences), handout.InitList},
}

// sentence returns the sentence of the handout that a difference breaks, or fallback if that
// does not follow from the difference.
func sentence(d *compare.Difference, fallback string) string {
	switch {
	case d.Field == compare.Frees && d.Actual == compare.ThePool:
		return handout.DestroyKeepsPool
	case d.Op.Engine == trace.None:
		return handout.NullEngine
	case d.Field == compare.Allocates:
		return handout.NoMallocIfRefused
	}
	if s := fits(refused, d); s != "" {
		return s
	}
	switch {
	case d.Hangs:
		return cmp.Or(fits(hangs, d), handout.WhiteBox)
	case d.Channel == compare.Death:
		return cmp.Or(fits(deaths, d), handout.Valgrind)
	}
	if s := fits(clauses, d); s != "" {
		return s
	}
	switch d.Channel {
	case compare.Engine:
		return handout.FreeCount
	case compare.Pool:
		return handout.WriteOnlyOnAppend
	case compare.Heap:
		if d.Memory() {
			return handout.Valgrind
		}
		return handout.NoLeaks
	}
	return fallback
}

// fits returns the sentence of the first clause that matches a difference, or "".
func fits(clauses []clause, d *compare.Difference) string {
	for _, c := range clauses {
		if c.kind == d.Op.Kind.Single() && (c.channel == "" || c.channel == d.Channel) && strings.Contains(d.Field, c.field) &&
			strings.Contains(d.Expected, c.expected) && d.Has(c.facts...) {
			return c.sentence
		}
	}
	return ""
}
