package grade

import (
	"strings"

	"llmmemory/internal/course/handout"
	"llmmemory/internal/course/trace"
	"llmmemory/internal/grade/compare"
)

// A clause says which sentence a difference breaks: the first one that fits, with
// the call, the channel, and a part of the field. What is empty fits everything.
type clause struct {
	kind     trace.Kind
	channel  compare.Channel
	field    string
	expected string
	sentence string
}

// clauses are for differences that no trace was written for alone.
var clauses = []clause{
	{trace.Init, compare.Returned, "", "", handout.InitRefuses},
	{trace.Init, compare.Engine, "free", "", handout.InitFree},
	{trace.Init, compare.Engine, "pool", "", handout.InitStoresPool},
	{trace.Init, compare.Engine, "", "", handout.InitTotal},
	{trace.Init, compare.Counts, "", "", handout.InitCounts},
	{trace.Init, compare.List, "", "", handout.InitList},

	{trace.Init, compare.Heap, compare.Keeps, "", handout.InitCounts},
	{trace.Create, compare.Heap, compare.Keeps, "", handout.CreateL2},
	{trace.Fork, compare.Heap, compare.Keeps, "", handout.ForkCopies},
	{trace.Append, compare.Heap, compare.Keeps, "", handout.AppendL2},

	{trace.Create, compare.Returned, "", "NULL", handout.CreateProbes},
	{trace.Create, compare.Returned, "", "", handout.CreateLinks},
	{trace.Create, compare.Sequence, "kv_count", "", handout.CreateLinks},
	{trace.Create, compare.Sequence, "]", "-1", handout.CreateL2},
	{trace.Create, compare.Sequence, "]", "NULL", handout.CreateL1},
	{trace.Create, compare.Sequence, "", "", handout.CreateMaps},
	{trace.Create, compare.Counts, "", "", handout.CreateMaps},
	{trace.Create, compare.List, "", "", handout.CreateLinks},
	{trace.Create, compare.Pool, "", "", handout.CreateNoWrites},

	{trace.Free, compare.Returned, "", "", handout.FreeDetaches + " " + handout.FreeNotFound},
	{trace.Free, compare.List, "", "", handout.FreeDetaches},
	{trace.Free, compare.Engine, "", "", handout.FreeCounts},
	{trace.Free, compare.Counts, "", "", handout.FreeReleases},
	{trace.Free, compare.Heap, "", "", handout.FreeTables},

	{trace.Fork, compare.Returned, "", "", handout.ForkIDs},
	{trace.Fork, compare.Counts, "", "", handout.ForkShares},
	{trace.Fork, compare.List, "", "", handout.ForkLinks},
	{trace.Fork, compare.Sequence, "kv_count", "", handout.ForkLinks},
	{trace.Fork, compare.Sequence, "", "", handout.ForkCopies},

	{trace.Append, compare.Returned, "", "-1", handout.AppendFinds + handout.Elided + handout.AppendFull + handout.Elided + handout.AppendProbes},
	{trace.Append, compare.Returned, "", "", handout.AppendIncrements},
	{trace.Append, compare.Sequence, "kv_count", "", handout.AppendIncrements},
	{trace.Append, compare.Sequence, "]", "NULL", handout.AppendL2},
	{trace.Append, compare.Sequence, "", "", handout.AppendMaps},
	{trace.Append, compare.Counts, "", "", handout.AppendRecounts},
	{trace.Append, compare.Pool, "", "", handout.AppendCopies + handout.Elided + handout.AppendStores},

	{trace.Destroy, compare.Pool, "", "", handout.DestroyKeepsPool},
	{trace.Destroy, compare.Heap, "", "", handout.DestroyAll},
	{trace.Destroy, compare.Returned, "", "", handout.DestroyReturns},
}

// sentence is the one of the handout that a difference breaks.
func sentence(d *compare.Difference) string {
	switch {
	case d.Field == compare.Frees && d.Actual == compare.ThePool:
		return handout.DestroyKeepsPool
	case d.Hangs:
		return handout.WhiteBox
	case d.Op.Engine == trace.None:
		return handout.NullEngine
	case d.Channel == compare.Death:
		return handout.Valgrind
	case d.Field == compare.Allocates:
		return handout.NoMallocIfRefused
	}
	kind := d.Op.Kind.Single()
	for _, c := range clauses {
		if c.kind == kind && c.channel == d.Channel && strings.Contains(d.Field, c.field) && (c.expected == "" || strings.Contains(d.Expected, c.expected)) {
			return c.sentence
		}
	}
	switch d.Channel {
	case compare.Engine:
		return handout.FreeCount
	case compare.Pool:
		return handout.WriteOnlyOnAppend
	case compare.Heap:
		return handout.NoLeaks
	}
	return handout.WhiteBox
}
