package exhaustive

import (
	"slices"

	"llmmemory/internal/homework/course/trace"
)

const (
	perBlock  = 16 // records in a block
	tableSize = 16 // entries of an L1 and of an L2 table
	maxBlocks = tableSize * tableSize
	blockSize = 64
	unmapped  = -1
)

// A State is everything that a host can see of one engine and its pool through llm_memory.h. The zero State has
// no engine.
type State struct {
	Exists    bool
	Free      int32      // free_local_blocks
	Counts    []int32    // ref_count, one for each block
	Pool      []Record   // 16 for each block
	Sequences []Sequence // active_seqs, in list order
}

// A Record is one int of the pool. In a Case append_kv never writes a negative number; untouched(i),
// which is negative, stands for the content of word i before llm_init.
type Record int32

// untouched returns the Record of a word that was never written, or of its copy.
func untouched(word int) Record { return Record(-1 - word) }

// Word returns the word whose content before llm_init was r, or false if append_kv wrote r.
func (r Record) Word() (word int, untouched bool) { return int(-1 - r), r < 0 }

// A Sequence is one element of active_seqs. A nil table stands for NULL.
type Sequence struct {
	ID      int32
	KVCount int32
	Tables  [tableSize]*Table
}

// A Table is an L2 table. It is never changed, only replaced.
type Table [tableSize]int32

// Allocations returns the number of live malloc allocations in the state.
func (s *State) Allocations() int {
	if !s.Exists {
		return 0
	}
	n := 2 // the engine and ref_count
	for i := range s.Sequences {
		n += 2 + s.Sequences[i].tables()
	}
	return n
}

// Clone returns a copy of s. They share the tables, which no call changes.
func (s *State) Clone() State {
	c := *s
	c.Counts = slices.Clone(s.Counts)
	c.Pool = slices.Clone(s.Pool)
	c.Sequences = slices.Clone(s.Sequences)
	return c
}

// Play makes one call and reports whether it succeeds, that is, returns 0 or a pointer
// other than NULL. op must be a call of llm_memory.h, not a write from outside. A call
// that fails changes nothing.
func (s *State) Play(op trace.Op) bool {
	if op.Kind == trace.Init {
		return s.init(op)
	}
	if op.Engine == trace.None || !s.Exists {
		return false // handout, Pointer Safety
	}
	switch op.Kind {
	case trace.Create:
		return s.create(op)
	case trace.Fork:
		return s.fork(op)
	case trace.Forks:
		for i := range op.C {
			s.fork(trace.Op{Kind: trace.Fork, A: op.A, B: op.B + i})
		}
		return true
	case trace.Append:
		return s.append(op)
	case trace.Free:
		return s.free(op)
	case trace.Destroy:
		*s = State{Pool: s.Pool}
		return true
	}
	panic("exhaustive: not a call: " + op.Kind.String())
}

// mallocs reports whether n allocations succeed if allocation number op.Fail fails.
func mallocs(op trace.Op, n int) bool { return op.Fail == 0 || op.Fail > n }

func (s *State) find(id int32) *Sequence {
	for i := range s.Sequences {
		if s.Sequences[i].ID == id {
			return &s.Sequences[i]
		}
	}
	return nil
}

func (q *Sequence) tables() int {
	n := 0
	for _, table := range q.Tables {
		if table != nil {
			n++
		}
	}
	return n
}
