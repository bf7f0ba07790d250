package compare

import (
	"fmt"
	"regexp"
	"strings"

	"llmmemory/internal/course/trace"
)

// A Channel is where a difference was seen.
type Channel string

// The channels, in the order in which they are looked at.
const (
	Death       Channel = "process"
	Returned    Channel = "return value"
	Engine      Channel = "engine"
	Counts      Channel = "ref_count"
	List        Channel = "active_seqs"
	Sequence    Channel = "sequence"
	Pool        Channel = "pool"
	Heap        Channel = "heap"
	Allocations Channel = "allocations" // two things in one allocation
)

// Allocates is the Field of a difference of the heap that breaks a contract of its
// own: no call that has to fail may allocate.
const Allocates = "an allocation in a call that has to fail"

// A Difference is the first thing that was not as it had to be.
type Difference struct {
	Step     int // index in the trace
	Op       trace.Op
	Channel  Channel
	Field    string // as a C programmer writes it
	Engine   int    // which one it was seen in
	Shape    string // Field without its numbers: what kind of field it is
	Expected string
	Actual   string
	Hangs    bool   `json:",omitempty"` // the call did not come back
	Known    bool   `json:",omitempty"` // nor did it after the same calls before: it was not waited for again
	Said     string `json:",omitempty"` // the end of what the submission wrote to its standard error
	Facts    []Fact `json:",omitempty"` // of the call
	sequence int32  // whose field it is
	byteAt   int64  // of the pool
}

// A Result is what one trace showed.
type Result struct {
	All    []*Difference              // in their order
	Shapes map[trace.Kind]*Difference // by call: what it does not make an allocation of its own
	Calls  []uint32                   // of the system: those that were refused
}

// First is the difference that came first, nil if there is none.
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

// Same reports whether two differences show the same mistake: the same call, seen
// in the same way, whichever number was wrong.
func (d *Difference) Same(o *Difference) bool {
	return d.Op.Kind.Function() == o.Op.Kind.Function() && (d.Op.Engine == trace.None) == (o.Op.Engine == trace.None) &&
		d.Channel == o.Channel && d.Shape == o.Shape
}

// Frees is the Field of a difference of the heap: a call frees what is no allocation, or
// no longer one. ThePool is its Actual where that is the caller's pool.
const (
	Frees   = "what is freed"
	ThePool = "the pool, which is the caller's"
)

// Memory reports whether it is a matter of memory alone: something is written
// outside an allocation, or freed that is not allocated.
func (d *Difference) Memory() bool { return d.Channel == Heap && (d.Field == Frees || d.Overrun()) }

// Overrun reports whether something is written outside an allocation.
func (d *Difference) Overrun() bool { return d.Channel == Heap && strings.HasPrefix(d.Field, "byte ") }

// Error is one line of it.
func (d *Difference) Error() string {
	return fmt.Sprintf("step %d, %s: %s", d.Step+1, d.Op, d.Headline())
}

var numbers = regexp.MustCompile(`-?[0-9]+`)

func differs(channel Channel, field string, expected, actual any) *Difference {
	return &Difference{Channel: channel, Field: field, Shape: numbers.ReplaceAllString(field, "N"), Expected: fmt.Sprint(expected), Actual: fmt.Sprint(actual)}
}
