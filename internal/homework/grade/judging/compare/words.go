package compare

import (
	"fmt"
	"strconv"
	"strings"

	"llmmemory/internal/homework/course/trace"
)

// says replaces the {names} in the words of a mistake by the values of a difference.
func (d *Difference) says(words string) string {
	made, known, verb := "a sequence", "", "is"
	if d.Op.Kind == trace.Init {
		made = "an engine"
	}
	if d.Known {
		known = ", as after the same calls before; it was not waited for again"
	}
	switch {
	case strings.HasPrefix(d.Actual, Unwritten):
		verb = "was"
	case d.Actual == Freed && d.Channel == List:
		verb = "leads to"
	}
	are := "are"
	if strings.HasPrefix(d.Actual, "1 allocation ") {
		are = "is"
	}
	return strings.NewReplacer("{call}", d.Op.Kind.Function(), "{field}", d.Field, "{expected}", d.Expected, "{actual}", d.Actual,
		"{why}", d.reason(), "{where}", d.place(), "{several}", d.successes(), "{made}", made, "{known}", known, "{is}", verb, "{are}", are).Replace(words)
}

// reason returns the end of the message if the call must fail. It says that the call must fail and, if known, for which
// reason. If the call must succeed, or if the step is not a single call, reason returns "".
func (d *Difference) reason() string {
	if d.Op.Kind.Outside() || d.Op.Kind.Many() {
		return ""
	}
	reason := strings.TrimPrefix(string(d.refusal()), "must fail: ")
	if d.Op.Engine == trace.None {
		reason = "engine is NULL"
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

func (d *Difference) successes() string {
	call := d.Op.Kind.Function()
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

func (d *Difference) place() string {
	if _, location, found := strings.Cut(d.Field, "("); found { // (block 1, record 4)
		block, record, _ := strings.Cut(strings.TrimSuffix(location, ")"), ", ")
		return record + " of " + block
	}
	if strings.HasSuffix(d.Field, outsidePool) {
		return "memory outside the pool"
	}
	return "the pool"
}
