package reproduce

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/judging/compare"
)

// A check is C code that makes the last call of a trace and compares an int with its expected value.
type check struct {
	before   string // a statement
	call     string // the call, which keeps its result if needed
	actual   string // an expression
	expected string // an expression
	format   string // printf format of both numbers; empty if they mean nothing to a student
	heap     bool   // only the program's own heap shows it
}

var (
	entry      = regexp.MustCompile(`^sequence (-?\d+): block_table\[(\d+)\]\[(\d+)\]$`)
	table      = regexp.MustCompile(`^sequence (-?\d+): block_table\[(\d+)\]$`)
	records    = regexp.MustCompile(`^sequence (-?\d+): kv_count$`)
	pool       = regexp.MustCompile(`^byte (-?\d+)(,| of)`)
	allocation = regexp.MustCompile(`^an allocation of (\d+) bytes$`)
)

func checkOf(op trace.Op, d *compare.Difference, after *world, liveBefore int) check {
	c := check{call: Statement(op), format: "%d"}
	engine := fmt.Sprintf("e[%d]", d.Engine)
	switch d.Channel {
	case compare.Returned:
		c.returned(op, d)
	case compare.Engine, compare.Counts:
		if size := allocation.FindStringSubmatch(d.Expected); size != nil {
			c.allocated(engine+strings.TrimPrefix(d.Field, "engine"), size[1])
		} else if field, found := strings.CutPrefix(d.Field, "engine->"); found && field != "pool_base_ptr" && field != "ref_count" {
			c.actual, c.expected = engine+"->"+field, d.Expected
		} else if field == "pool_base_ptr" && !op.Large() {
			c.actual, c.expected, c.format = fmt.Sprintf("%s->pool_base_ptr == pool%d", engine, d.Engine), "1", ""
		}
	case compare.Sequence:
		c.sequence(engine, d)
	case compare.Pool:
		switch m := pool.FindStringSubmatch(d.Field); {
		case len(after.Pools[d.Engine]) == 0: // it is large
		case m == nil: // it is written with the bytes that it had
			c.before = fmt.Sprintf("mprotect(space%d, sizeof space%[1]d, PROT_READ);", d.Engine)
		default:
			c.actual, c.expected, c.format = fmt.Sprintf("((unsigned char *)pool%d)[%s]", d.Engine, m[1]), d.Expected, "%#04x"
		}
	case compare.List:
		c.format = ""
		c.before = "static const int ids[] = {" + strings.Join(append(after.ids(d.Engine), "0"), ", ") + "};"
		c.actual, c.expected = fmt.Sprintf("list_is(%s, ids, %d)", engine, len(after.ids(d.Engine))), "1"
	case compare.Heap, compare.Allocations:
		c.format, c.heap = "", true
		switch {
		case d.Overrun():
			c.actual, c.expected = "overruns()", "0"
		case d.Field == compare.Frees:
			c.actual, c.expected = "(int)bad_frees", "0"
		case d.Field == compare.Allocates:
			c.before, c.actual, c.expected = "long before = allocations;", "(int)(allocations - before)", "0"
		default:
			c.before, c.actual, c.expected = "long before = live;", "(int)(live - before)", fmt.Sprint(after.Live()-liveBefore)
		}
	}
	if op.Engine == trace.None && op.Kind != trace.Init && c.actual == "" {
		c.actual, c.expected, c.format = "1", "1", "" // the call only has to return
	}
	return c
}

func (c *check) allocated(pointer, size string) {
	c.actual, c.expected = fmt.Sprintf("allocated(%s, %s)", pointer, size), "1"
	c.format, c.heap = "", true
}

func (c *check) returned(op trace.Op, d *compare.Difference) {
	switch {
	case d.Field == "the returned value":
		c.call, c.actual, c.expected = "int returned = "+c.call, "returned", d.Expected
	case op.Kind.Many():
		c.before, c.call = "int made = 0;", counted(op)
		c.actual, c.expected = "made", d.Expected
	case d.Expected == "NULL" || d.Expected == "not NULL":
		if op.Kind == trace.Init && op.A >= 0 {
			c.actual = fmt.Sprintf("e[%d] != NULL", op.Engine)
		} else {
			c.call, c.actual = "void *returned = "+c.call, "returned != NULL"
		}
		c.expected, c.format = map[bool]string{true: "0", false: "1"}[d.Expected == "NULL"], ""
	default:
		c.format = ""
		c.call = "Sequence *returned = " + c.call
		c.actual = fmt.Sprintf("returned != NULL && &returned->node == e[%d]->active_seqs.prev", op.Engine)
		c.expected = "1"
	}
}

func (c *check) sequence(engine string, d *compare.Difference) {
	find := func(id string) string {
		n, _ := strconv.ParseInt(id, 10, 32) // the pattern has digits only
		return fmt.Sprintf("find_given(%s, %s)", engine, literal(int32(n)))
	}
	if size := allocation.FindStringSubmatch(d.Expected); size != nil {
		id, field, _ := strings.Cut(strings.TrimPrefix(d.Field, "sequence "), ": ")
		c.allocated(find(id)+"->"+field, size[1])
	} else if m := records.FindStringSubmatch(d.Field); m != nil {
		c.actual, c.expected = find(m[1])+"->kv_count", d.Expected
	} else if m := entry.FindStringSubmatch(d.Field); m != nil {
		c.actual, c.expected = fmt.Sprintf("%s->block_table[%s][%s]", find(m[1]), m[2], m[3]), d.Expected
	} else if m := table.FindStringSubmatch(d.Field); m != nil && (d.Expected == "NULL" || d.Expected == "not NULL") {
		c.actual, c.format = fmt.Sprintf("%s->block_table[%s] != NULL", find(m[1]), m[2]), ""
		c.expected = map[bool]string{true: "0", false: "1"}[d.Expected == "NULL"]
	}
}
