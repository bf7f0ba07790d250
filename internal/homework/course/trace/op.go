package trace

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A Kind is what an Op does.
type Kind uint8

// The kinds of steps: a call of llm_memory.h, a series of calls of one function, or a write of a white-box tester.
const (
	Init     Kind = iota // a pool of A bytes and, if it is large (Large), B MiB; if A is below 0, NULL
	Create               // id A, length B
	Fork                 // parent A, id B
	Append               // id A, record B
	Free                 // id A
	Destroy              //
	Forks                // parent A, ids B to B + C - 1; the states are compared after the last call
	Creates              // ids A to A + C - 1, length B; likewise
	Appends              // id A, records B to B + C - 1; likewise
	Frees                // ids A to A + B - 1; likewise
	Hole                 // sequence A loses logical block B; counts stay consistent
	Move                 // sequence A's L2 tables in slots B and C of block_table change places
	Relocate             // sequence A's L2 table in slot B goes to another address; B = 16: its L1 table, 17: ref_count
	Rename               // sequence A becomes B
	Unlink               // sequence A is taken out of the list and not freed
	Count                // kv_count of sequence A becomes B
	Share                // sequence B maps logical block C to the block that sequence A maps there
	Table                // sequence A gets an L2 table without a mapped entry in slot B
	Map                  // sequence A maps logical block B to the first free block
	Place                // sequence A maps logical block B to block C, if that is free
	kinds
)

type fact struct {
	word      string // the first of a line
	function  string // of llm_memory.h; empty for a write from outside
	task      int    // of the handout
	arguments int    // numbers that follow the engine in the text
	single    Kind   // kind of each call of a step that makes several; for other steps, the kind itself
}

var facts = [kinds]fact{
	Init:    {"init", "llm_init", 1, 1, Init},
	Create:  {"create", "create_sequence", 2, 2, Create},
	Fork:    {"fork", "fork_sequence", 3, 2, Fork},
	Append:  {"append", "append_kv", 4, 2, Append},
	Free:    {"free", "free_sequence", 2, 1, Free},
	Destroy: {"destroy", "llm_destroy", 5, 0, Destroy},

	Forks:   {"forks", "fork_sequence", 3, 3, Fork},
	Creates: {"creates", "create_sequence", 2, 3, Create},
	Appends: {"appends", "append_kv", 4, 3, Append},
	Frees:   {"frees", "free_sequence", 2, 2, Free},

	Hole:     {"hole", "", 4, 2, Hole},
	Move:     {"move", "", 4, 3, Move},
	Relocate: {"relocate", "", 4, 2, Relocate},
	Rename:   {"rename", "", 4, 2, Rename},
	Unlink:   {"unlink", "", 4, 1, Unlink},
	Count:    {"count", "", 4, 2, Count},
	Share:    {"share", "", 4, 3, Share},
	Table:    {"table", "", 4, 2, Table},
	Map:      {"map", "", 4, 2, Map},
	Place:    {"place", "", 4, 3, Place},
}

// Outside reports whether a step of kind k is a write from outside: the tester writes to the engine's memory, without a
// call.
func (k Kind) Outside() bool { return k >= Hole }

// Function returns the name of the function in llm_memory.h that a step of kind k calls. A write from outside calls no
// function; for its kind, Function returns the same word as String.
func (k Kind) Function() string { return cmp.Or(facts[k].function, facts[k].word) }

// TaskOf returns the task of the handout in which students write a function, or 0 if there is none.
func TaskOf(function string) int {
	for _, f := range facts {
		if f.function == function && function != "" {
			return f.task
		}
	}
	return 0
}

// String returns the first word of a line in the text form, such as "create".
func (k Kind) String() string { return facts[k].word }

// An Op is one step of a trace.
type Op struct {
	Kind    Kind
	Engine  int   // 0 to Engines-1, or None
	A, B, C int32 // see Kind
	Fail    int   // number of the allocation that fails, from 1; if 0, none fails
	Given   bool  // the tester makes the changes of the call in place of the submission
}

// Engines is the maximum number of engines at a time.
const Engines = 4

// None is the Engine of calls that get NULL.
const None = -1

// String returns the step as a line of a trace. The line begins with "given" if Given is set. Then come the word of the
// kind, the engine, and the numbers. If an allocation fails, the line ends with oom=N.
func (o Op) String() string {
	var b strings.Builder
	if o.Given {
		b.WriteString("given ")
	}
	b.WriteString(o.Kind.String())
	if o.Engine == None {
		b.WriteString(" null")
	} else {
		fmt.Fprintf(&b, " e%d", o.Engine)
	}
	for i, n := range []int32{o.A, o.B, o.C} {
		if i < facts[o.Kind].arguments || i == 1 && o.Large() {
			fmt.Fprintf(&b, " %d", n)
		}
	}
	if o.Fail > 0 {
		fmt.Fprintf(&b, " oom=%d", o.Fail)
	}
	return b.String()
}

// MarshalText returns String, so that stored reports have the text form.
func (o Op) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText parses one line of a trace.
func (o *Op) UnmarshalText(text []byte) (err error) {
	*o, err = parse(strings.Fields(string(text)))
	return err
}

// Pool returns the size in bytes of the pool that an Init makes.
func (o Op) Pool() int64 { return int64(o.A) + int64(o.B)<<20 }

// ForInts reports whether the pool of an Init gets an address that is a multiple of 4 but not of 8. An array of int in
// a struct may have such an address. A small pool gets one if its size is no multiple of 16.
func (o Op) ForInts() bool { return o.Kind == Init && !o.Large() && o.A > 0 && o.A%16 != 0 }

// Large reports whether an Init makes a large pool. For such a pool only address space is reserved. A submission can
// touch only its first End bytes and its last End bytes.
func (o Op) Large() bool { return o.Kind == Init && o.B != 0 }

// End is the number of bytes at each end of a large pool that can be touched. MaxLarge is the maximum size of a large
// pool in MiB, because ref_count must fit into the submission's heap.
const (
	End      = 64 << 10
	MaxLarge = 3 << 10
)

// Task returns the task of the handout that a step belongs to, 1 to 5. A step in which the tester writes to the
// engine's memory (Outside) belongs to task 4.
func (o Op) Task() int { return facts[o.Kind].task }

// ErrSyntax is wrapped by the errors of Parse, which contain the number of the line.
var ErrSyntax = errors.New("not a trace")

// Limits of a trace. All pools of a trace, with slackPerPool bytes more for each, must fit into maxPools bytes. A
// submission has 64 MiB for them.
const (
	maxSteps     = 100_000
	maxForks     = 100_000 // calls of one step
	maxPools     = 60 << 20
	slackPerPool = 8192
)

// Text returns a trace as text, with a comment in the first line.
func Text(comment string, ops []Op) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n", comment)
	for _, op := range ops {
		fmt.Fprintln(&b, op)
	}
	return b.String()
}

// Parse parses the text of a trace, in which each line is an Op. Comments begin with #.
func Parse(text string) ([]Op, error) {
	var ops []Op
	pools := int64(0)
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		op, err := parse(fields)
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %s", ErrSyntax, i+1, err)
		}
		if op.Kind == Init {
			pools += int64(max(0, op.A)) + slackPerPool
		}
		if pools > maxPools || len(ops) == maxSteps {
			return nil, fmt.Errorf("%w: line %d: a trace has at most %d steps, and pools of %d MiB in all", ErrSyntax, i+1, maxSteps, maxPools>>20)
		}
		ops = append(ops, op)
	}
	return ops, nil
}

func parse(fields []string) (Op, error) {
	given := len(fields) > 0 && fields[0] == "given"
	if given {
		fields = fields[1:]
	}
	if len(fields) == 0 {
		return Op{}, errors.New("an empty line")
	}
	kind := Kind(slices.IndexFunc(facts[:], func(f fact) bool { return f.word == fields[0] }))
	if kind >= kinds {
		var words []string
		for _, f := range facts {
			words = append(words, f.word)
		}
		return Op{}, fmt.Errorf("%q is none of %s", fields[0], strings.Join(words, ", "))
	}
	op := Op{Kind: kind, Given: given}
	rest := fields[1:]
	if n := len(rest); n > 0 && strings.HasPrefix(rest[n-1], "oom=") {
		fail, err := strconv.Atoi(rest[n-1][len("oom="):])
		if err != nil || fail < 1 {
			return Op{}, fmt.Errorf("%q: oom=N names the N-th allocation, from 1", rest[n-1])
		}
		op.Fail, rest = fail, rest[:n-1]
	}
	n := facts[kind].arguments
	if kind == Init && len(rest) == 3 {
		n = 2
	}
	if len(rest) != 1+n {
		return Op{}, fmt.Errorf("%s wants an engine and %d numbers", kind, facts[kind].arguments)
	}
	engine, err := parseEngine(rest[0])
	if err != nil {
		return Op{}, err
	}
	op.Engine = engine
	for i, number := range []*int32{&op.A, &op.B, &op.C}[:n] {
		n, err := strconv.ParseInt(rest[1+i], 10, 32)
		if err != nil {
			return Op{}, fmt.Errorf("%q is not an int", rest[1+i])
		}
		*number = int32(n)
	}
	return op, op.check()
}

// check returns an error if the fields of a step are not valid together.
func (o Op) check() error {
	if o.Engine == None && (o.Kind == Init || o.Kind.Outside() || o.Given) {
		return fmt.Errorf("%s must name an engine: e0 to e%d", o.Kind, Engines-1)
	}
	if o.Given && (o.Kind.Outside() || o.Fail > 0) {
		return fmt.Errorf("given stands before one of the calls, and its allocations do not fail")
	}
	if o.Large() && (o.A < 0 || o.A > 1<<20 || o.B < 1 || o.B > MaxLarge) {
		return fmt.Errorf("a large pool has 1 to %d MiB, and at most 1 MiB in bytes", MaxLarge)
	}
	first, n := o.callRange()
	if n < 0 || n > maxForks || first > math.MaxInt32-n {
		return fmt.Errorf("%s makes 1 to %d calls, whose numbers are ints", o.Kind, maxForks)
	}
	return nil
}

// callRange returns the numbers of the calls that a step makes: first to first+n-1. These numbers are the records of
// Appends, and the ids of Forks, Creates and Frees. For a step of another kind, callRange returns 0 and 0. If the step
// has a number of calls below 1, n is -1.
func (o Op) callRange() (first, n int32) {
	switch o.Kind {
	case Forks, Appends:
		first, n = o.B, o.C
	case Creates:
		first, n = o.A, o.C
	case Frees:
		first, n = o.A, o.B
	default:
		return 0, 0
	}
	if n < 1 {
		n = -1
	}
	return first, n
}

// Calls returns the number of calls that a step makes; 0 for a write from outside.
func (o Op) Calls() int {
	switch {
	case o.Kind.Outside():
		return 0
	case !o.Kind.Many():
		return 1
	}
	_, n := o.callRange()
	return int(max(0, n))
}

// Each yields the single calls of a step that makes several calls. For any other step, it yields the step itself.
func (o Op) Each(yield func(Op) bool) {
	_, n := o.callRange()
	if n <= 0 {
		yield(o)
		return
	}
	single := o
	single.C = 0
	for i := range n {
		switch o.Kind {
		case Forks:
			single.Kind, single.B = Fork, o.B+i
		case Appends:
			single.Kind, single.B = Append, o.B+i
		case Creates:
			single.Kind, single.A = Create, o.A+i
		case Frees:
			single.Kind, single.A, single.B = Free, o.A+i, 0
		}
		if !yield(single) {
			return
		}
	}
}

// Many reports whether a step of this kind makes several calls.
func (k Kind) Many() bool { return k >= Forks && k <= Frees }

// Single returns the kind of the single calls of which a step of kind k consists. If k is a single call or a write from
// outside, Single returns k itself.
func (k Kind) Single() Kind { return facts[k].single }

// Isolate returns a copy of a trace in which the grader does the work of most calls by writing to memory (Given). The
// submission still makes all calls of the kinds in real. It also makes the calls with a failing allocation, or with a
// NULL engine or pool.
func Isolate(ops []Op, real ...Kind) []Op {
	isolated := slices.Clone(ops)
	for i, op := range isolated {
		given := !op.Kind.Outside() && op.Engine != None && op.Fail == 0 && !(op.Kind == Init && op.A < 0)
		isolated[i].Given = given && !slices.Contains(real, op.Kind.Single())
	}
	return isolated
}

func parseEngine(word string) (int, error) {
	if word == "null" {
		return None, nil
	}
	n, err := strconv.Atoi(strings.TrimPrefix(word, "e"))
	if err != nil || !strings.HasPrefix(word, "e") || n < 0 || n >= Engines {
		return 0, fmt.Errorf("%q is no engine: e0 to e%d, or null", word, Engines-1)
	}
	return n, nil
}
