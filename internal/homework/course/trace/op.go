package trace

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A Kind is what an Op does.
type Kind uint8

// The six calls of llm_memory.h, and what a white-box tester does between them.
const (
	Init     Kind = iota // an engine over a pool of A bytes, and B MiB if it is large (Large); A < 0: NULL
	Create               // id A, length B
	Fork                 // parent A, id B
	Append               // id A, record B
	Free                 // id A
	Destroy              //
	Forks                // parent A, ids B to B + C - 1; compared when all are done
	Creates              // ids A to A + C - 1, length B; the same
	Appends              // id A, records B to B + C - 1; the same
	Frees                // ids A to A + B - 1; the same
	Hole                 // sequence A loses logical block B; counts stay consistent
	Move                 // sequence A's L2 tables in slots B and C of block_table change places
	Relocate             // sequence A's L2 table in slot B goes to another address; B = 16: its L1 table, 17: ref_count
	Rename               // sequence A becomes B
	Unlink               // sequence A is taken out of the list, and kept
	Count                // kv_count of sequence A becomes B
	Share                // sequence B maps logical block C to the block that sequence A maps there
	Table                // sequence A gets an L2 table without a mapped entry in slot B
	Map                  // sequence A maps logical block B to the first free block
	Place                // sequence A maps logical block B to block C, if that is free
	kinds
)

var words = [kinds]string{"init", "create", "fork", "append", "free", "destroy", "forks", "creates", "appends", "frees",
	"hole", "move", "relocate", "rename", "unlink", "count", "share", "table", "map", "place"}

var functions = [...]string{"llm_init", "create_sequence", "fork_sequence", "append_kv", "free_sequence", "llm_destroy",
	"fork_sequence", "create_sequence", "append_kv", "free_sequence"}

// arguments is how many numbers follow the engine in the text.
var arguments = [kinds]int{1, 2, 2, 2, 1, 0, 3, 3, 3, 2, 2, 3, 2, 2, 1, 2, 3, 2, 2, 3}

// Outside reports whether k is a write by the tester, not a call.
func (k Kind) Outside() bool { return k >= Hole }

// Function is what llm_memory.h calls it, or what it is.
func (k Kind) Function() string {
	if k.Outside() {
		return k.String()
	}
	return functions[k]
}

// TaskOf is the task of the handout that asks for a function, 0 if none does.
func TaskOf(function string) int {
	for kind := Init; !kind.Outside(); kind++ {
		if functions[kind] == function {
			return Op{Kind: kind}.Task()
		}
	}
	return 0
}

// String is the first word of a line in the text form, such as "create".
func (k Kind) String() string { return words[k] }

// An Op is one step of a trace.
type Op struct {
	Kind    Kind
	Engine  int   // which one of Engines; None: the call gets NULL
	A, B, C int32 // see Kind
	Fail    int   // which allocation of the call fails, from 1; 0: none
	Given   bool  // the tester does the work of the call, in place of the submission
}

// Engines is the most engines that a trace can have at a time.
const Engines = 4

// None is the engine that is NULL.
const None = -1

// String is one line of a trace: "given" where the tester does it, the word, the
// engine, the numbers, and oom=N.
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
		if i < arguments[o.Kind] || i == 1 && o.Large() {
			fmt.Fprintf(&b, " %d", n)
		}
	}
	if o.Fail > 0 {
		fmt.Fprintf(&b, " oom=%d", o.Fail)
	}
	return b.String()
}

// MarshalText is String, so that stored reports read like traces.
func (o Op) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads one line of a trace.
func (o *Op) UnmarshalText(text []byte) (err error) {
	*o, err = parse(strings.Fields(string(text)))
	return err
}

// Pool is the size of the pool of an Init in bytes.
func (o Op) Pool() int64 { return int64(o.A) + int64(o.B)<<20 }

// ForInts reports whether the pool of an Init begins at an address that is a multiple of 4
// and of no more, as an array of int in a struct does: one whose size is no multiple of 16.
func (o Op) ForInts() bool { return o.Kind == Init && !o.Large() && o.A > 0 && o.A%16 != 0 }

// Large reports whether an Init is over a pool that is only reserved: what lies
// between the first and the last End bytes of it cannot be touched.
func (o Op) Large() bool { return o.Kind == Init && o.B != 0 }

// End is how much of a large pool can be touched at either end. MaxLarge is the
// most MiB of one: its ref_count has to fit into the heap of a submission.
const (
	End      = 64 << 10
	MaxLarge = 3 << 10
)

// Task is the task of the handout that an Op belongs to, 1 to 5. A write from
// outside belongs to the last one that can have made what is written to.
func (o Op) Task() int {
	switch o.Kind {
	case Init:
		return 1
	case Create, Creates, Free, Frees:
		return 2
	case Fork, Forks:
		return 3
	case Destroy:
		return 5
	default:
		return 4
	}
}

// ErrSyntax is wrapped by the errors of Parse, which name the line.
var ErrSyntax = errors.New("not a trace")

// A trace has at most maxSteps steps, and its pools, each with slackPerPool bytes around
// it, at most maxPools bytes in all: what the memory of a submission holds.
const (
	maxSteps     = 100_000
	maxForks     = 100_000 // of one step: children, sequences, records
	maxPools     = 60 << 20
	slackPerPool = 8192
)

// Parse reads a trace: an Op a line, and comments from # on.
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
	kind := Init
	for ; kind < kinds && words[kind] != fields[0]; kind++ {
	}
	if kind == kinds {
		return Op{}, fmt.Errorf("%q is none of %s", fields[0], strings.Join(words[:], ", "))
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
	n := arguments[kind]
	if kind == Init && len(rest) == 3 {
		n = 2
	}
	if len(rest) != 1+n {
		return Op{}, fmt.Errorf("%s wants an engine and %d numbers", kind, arguments[kind])
	}
	engine, err := parseEngine(rest[0])
	if err != nil {
		return Op{}, err
	}
	op.Engine = engine
	for i, to := range []*int32{&op.A, &op.B, &op.C}[:n] {
		n, err := strconv.ParseInt(rest[1+i], 10, 32)
		if err != nil {
			return Op{}, fmt.Errorf("%q is not an int", rest[1+i])
		}
		*to = int32(n)
	}
	return op, op.check()
}

// check returns an error if a step makes no sense.
func (o Op) check() error {
	if o.Engine == None && (o.Kind == Init || o.Kind.Outside() || o.Given) {
		return fmt.Errorf("%s has to name an engine: e0 to e%d", o.Kind, Engines-1)
	}
	if o.Given && (o.Kind.Outside() || o.Fail > 0) {
		return fmt.Errorf("given stands before one of the calls, and its allocations do not fail")
	}
	if o.Large() && (o.A < 0 || o.A > 1<<20 || o.B < 1 || o.B > MaxLarge) {
		return fmt.Errorf("a large pool has 1 to %d MiB, and at most 1 MiB in bytes", MaxLarge)
	}
	first, n := o.several()
	if n < 0 || n > maxForks || first > math.MaxInt32-n {
		return fmt.Errorf("%s makes 1 to %d calls, whose numbers are ints", o.Kind, maxForks)
	}
	return nil
}

// several is the first number and how many there are where a step is many calls;
// 0 and 0 where it is one, and -1 calls where it would be none.
func (o Op) several() (first, n int32) {
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

// Each is the single calls of a step that is many, or the step.
func (o Op) Each(yield func(Op) bool) {
	_, n := o.several()
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

// Many reports whether the step is many calls.
func (k Kind) Many() bool { return k >= Forks && k <= Frees }

// Single is the call that a step makes, once or many times.
func (k Kind) Single() Kind {
	switch k {
	case Forks:
		return Fork
	case Creates:
		return Create
	case Appends:
		return Append
	case Frees:
		return Free
	}
	return k
}

// Isolate gives a trace to the tester to play, but for the calls of some
// functions, named by their single Kinds, and those that get a NULL engine.
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
