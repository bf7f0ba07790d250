package compare

import (
	"fmt"
	"regexp"
	"strings"

	"llmmemory/internal/homework/course/trace"
)

// A Channel is where a difference was seen.
type Channel string

// The channels.
const (
	Death       Channel = "process"
	Returned    Channel = "return value"
	Engine      Channel = "engine"
	Counts      Channel = "ref_count"
	List        Channel = "active_seqs"
	Sequence    Channel = "sequence"
	Pool        Channel = "pool"
	Heap        Channel = "heap"
	Allocations Channel = "allocations" // two things share one allocation
)

// hang is what seen returns for a call that did not return. The Channel of such a call is Death.
const hang Channel = "time"

// seen is the Channel, or hang.
func (d *Difference) seen() Channel {
	if d.Hangs {
		return hang
	}
	return d.Channel
}

// theProgram is the Field of a Difference if the program does not start. If a write was outside the pool, the Field
// of its Difference ends with outsidePool.
const (
	theProgram  = "the program"
	outsidePool = "outside the pool"
)

// Fields of differences of the heap.
const (
	Allocates = "an allocation in a call that has to fail"
	Frees     = "what is freed"
	Leaks     = "what the call had to free and did not"
	Keeps     = "the allocations after the call" // their number is wrong
)

// ThePool is the Actual of a Difference if the submission frees the caller's pool. The Field is then Frees.
const ThePool = "the pool, which is the caller's"

// A Difference is a deviation from the expected state.
type Difference struct {
	Step     int // index in the trace
	Op       trace.Op
	Channel  Channel
	Field    string // what differs; a field of a struct is written as in C
	Engine   int    // index of the engine
	Shape    string // Field, or a part of it, without its numbers
	Expected string
	Actual   string
	Hangs    bool   `json:",omitempty"` // the call did not come back
	Known    bool   `json:",omitempty"` // it was not waited for: it had not come back after the same calls
	Said     string `json:",omitempty"` // the end of the submission's standard error
	Facts    []Fact `json:",omitempty"` // facts about the call
	sequence int32  // id of the sequence
	byteAt   int64  // place in the pool
}

// A Result is the outcome of playing one trace.
type Result struct {
	All    []*Difference              // in order
	Shapes map[trace.Kind]*Difference // by function: an allocation that it does not make separately
	Calls  []uint32                   // refused system calls
}

// First returns the first difference, or nil.
func (r Result) First() *Difference {
	if len(r.All) == 0 {
		return nil
	}
	return r.All[0]
}

func (r Result) last() *Difference {
	if len(r.All) == 0 {
		return nil
	}
	return r.All[len(r.All)-1]
}

// Same reports whether two differences show the same mistake: the function, the channel and the field are the same. In
// both, the engine is NULL or not, and the difference is in the call's engine or in another. Numbers, such as the id of
// a block, may differ.
func (d *Difference) Same(o *Difference) bool {
	return d.Op.Kind.Function() == o.Op.Kind.Function() && (d.Op.Engine == trace.None) == (o.Op.Engine == trace.None) &&
		d.Channel == o.Channel && d.Shape == o.Shape && d.inOtherEngine() == o.inOtherEngine()
}

func (d *Difference) inOtherEngine() bool {
	switch d.Channel {
	case Engine, Counts, List, Sequence, Pool:
		return d.Op.Engine != trace.None && d.Engine != d.Op.Engine
	}
	return false
}

// Memory reports whether the submission wrote outside an allocation or freed an address that is no live allocation.
func (d *Difference) Memory() bool { return d.Channel == Heap && (d.Field == Frees || d.Overrun()) }

// MemoryError reports whether Memcheck would report the mistake, too. This is so if Memory returns true, or if the
// difference is a leak.
func (d *Difference) MemoryError() bool { return d.Memory() || d.Channel == Heap && d.Field == Leaks }

// badAccess matches the signals that end a process after an access to a bad address or a division by zero.
var badAccess = regexp.MustCompile(`by (segmentation fault|bus error|floating point exception)`)

// BadAccess reports whether the call ended the process by accessing a bad address or dividing by zero. Memcheck or a
// sanitizer reports these, too.
func (d *Difference) BadAccess() bool {
	return d.Channel == Death && !d.Hangs && badAccess.MatchString(d.Actual)
}

// Overrun reports whether something was written outside an allocation.
func (d *Difference) Overrun() bool { return d.Channel == Heap && strings.HasPrefix(d.Field, "byte ") }

// Error describes the difference in one line.
func (d *Difference) Error() string {
	return fmt.Sprintf("step %d, %s: %s", d.Step+1, d.Op, d.Headline())
}

var numbers = regexp.MustCompile(`-?[0-9]+`)

func differs(channel Channel, field string, expected, actual any) *Difference {
	if n, is := actual.(int32); is {
		actual = Value(n)
	}
	return &Difference{Channel: channel, Field: field, Shape: numbers.ReplaceAllString(field, "N"), Expected: fmt.Sprint(expected), Actual: fmt.Sprint(actual)}
}
