package compare

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"llmmemory/internal/homework/course/trace"
)

// Headline is the difference in one sentence, for a student.
func (d *Difference) Headline() string {
	call := d.Op.Kind.Function()
	why := d.mustFail()
	switch {
	case d.Step < 0:
		return d.Actual
	case d.Hangs && d.Known:
		return call + " does not come back, as after the same calls before; it was not waited for again" + why
	case d.Hangs:
		return call + " does not come back" + why
	case d.Channel == Death && d.Field == "the program":
		return "The program does not start: " + d.Actual
	case d.Channel == Death:
		return call + " does not return: " + d.Actual + why
	case d.Channel == Returned:
		return d.returned(call, why)
	case d.Channel == Heap:
		return d.heap(call, why)
	case d.Channel == Pool:
		return d.pool(call, why)
	case d.Channel == Allocations:
		return fmt.Sprintf("%s: %s is part of another allocation, but has to be one of its own", call, d.Field)
	case why != "":
		return fmt.Sprintf("%s changes %s from %s to %s%s", call, d.Field, d.Expected, d.Actual, why)
	}
	is := "is"
	switch {
	case strings.HasPrefix(d.Actual, Unwritten):
		is = "was"
	case d.Actual == Freed && d.Channel == List:
		is = "leads to"
	}
	return fmt.Sprintf("After %s, %s %s %s, but has to be %s", call, d.Field, is, d.Actual, d.Expected)
}

// mustFail says that the call has to fail and why; it is empty if the call has to succeed.
func (d *Difference) mustFail() string {
	if d.Op.Kind.Outside() || d.Op.Kind.Many() {
		return ""
	}
	reason := ""
	if d.Op.Engine == trace.None {
		reason = "engine is NULL"
	} else if i := slices.IndexFunc(refusals, func(r refusal) bool { return d.Has(r.fact) }); i >= 0 {
		reason = strings.TrimPrefix(string(refusals[i].fact), "must fail: ")
	}
	must := fmt.Sprintf(", but this call must return %s without changing anything", refusedValue(d.Op.Kind))
	switch {
	case reason != "":
		return fmt.Sprintf("%s (%s)", must, reason)
	case d.Channel == Returned && d.Expected == refusedValue(d.Op.Kind):
		return must
	}
	return ""
}

func refusedValue(k trace.Kind) string {
	if k == trace.Append || k == trace.Free || k == trace.Destroy {
		return "-1"
	}
	return "NULL"
}

func (d *Difference) returned(call, why string) string {
	made := "a sequence"
	if d.Op.Kind == trace.Init {
		made = "an engine"
	}
	switch {
	case d.Op.Kind.Many():
		return d.manyReturned(call)
	case d.Actual == "NULL":
		return fmt.Sprintf("%s returns NULL, but this call has to succeed and return %s", call, made)
	case d.Actual == "not NULL":
		return fmt.Sprintf("%s returns %s%s", call, made, why)
	case d.Field == "the returned pointer":
		return call + " returns a pointer that is not the new sequence"
	case why != "":
		return fmt.Sprintf("%s returns %s%s", call, d.Actual, why)
	case d.Has(Done):
		return fmt.Sprintf("%s does its work, but returns %s instead of %s", call, d.Actual, d.Expected)
	}
	return fmt.Sprintf("%s returns %s, but this call has to succeed and return %s", call, d.Actual, d.Expected)
}

// manyReturned says how many of several calls succeed.
func (d *Difference) manyReturned(call string) string {
	made, _ := strconv.Atoi(d.Actual)
	want, _ := strconv.Atoi(d.Expected)
	calls := int(d.Op.C)
	if d.Op.Kind == trace.Frees {
		calls = int(d.Op.B)
	}
	switch {
	case calls == 1 && want == 1:
		return call + " fails, but this call has to succeed"
	case calls == 1:
		return call + " succeeds, but this call has to fail"
	case want == calls && made == 0:
		return fmt.Sprintf("All %d calls of %s fail, but have to succeed", calls, call)
	case want == calls && made == calls-1:
		return fmt.Sprintf("1 of %d calls of %s fails, but all have to succeed", calls, call)
	case want == calls:
		return fmt.Sprintf("%d of %d calls of %s fail, but all have to succeed", calls-made, calls, call)
	}
	return fmt.Sprintf("Of %d calls of %s %d succeed, but %d have to succeed", calls, call, made, want)
}

func (d *Difference) heap(call, why string) string {
	switch {
	case d.Field == Allocates:
		return fmt.Sprintf("%s allocates %s%s", call, d.Actual, why)
	case d.Field == Frees:
		return fmt.Sprintf("%s frees %s%s", call, d.Actual, why)
	case d.Field == leaks:
		return fmt.Sprintf("%s does not free %s", call, d.Actual)
	case d.Overrun():
		return fmt.Sprintf("%s writes outside an allocation: %s", call, d.Field)
	case d.Field == Keeps && d.Has(SharedTable):
		return fmt.Sprintf("After %s, %s, but has to be %s", call, d.Actual, d.Expected)
	case d.Field == Keeps:
		return fmt.Sprintf("After %s there are %s, but there have to be %s", call, d.Actual, d.Expected)
	}
	return fmt.Sprintf("%s makes %s allocations, but a call needs %s", call, d.Actual, d.Expected)
}

func (d *Difference) pool(call, why string) string {
	where := "the pool"
	if _, at, found := strings.Cut(d.Field, "("); found { // (block 1, record 4)
		block, record, _ := strings.Cut(strings.TrimSuffix(at, ")"), ", ")
		where = record + " of " + block
	} else if strings.HasSuffix(d.Field, "outside the pool") {
		where = "memory outside the pool"
	}
	switch {
	case why != "":
		return fmt.Sprintf("%s writes to %s%s", call, where, why)
	case d.Op.Kind.Single() != trace.Append:
		return fmt.Sprintf("%s writes to %s, but only append_kv may write to the pool", call, where)
	case where == "memory outside the pool":
		return fmt.Sprintf("%s writes to %s", call, where)
	case d.Has(OldBlock):
		return fmt.Sprintf("%s writes its record to a block that another sequence uses, too (%s)", call, where)
	case d.Has(SharedBlock, Stored, InCopy):
		return fmt.Sprintf("%s copies the shared block wrongly: %s is not that of the original", call, where)
	case d.Has(Stored):
		return fmt.Sprintf("%s writes its record where it belongs, but also to %s, which must not change", call, where)
	}
	return fmt.Sprintf("%s does not write its record to the right place: %s is wrong", call, where)
}
