package compare

import (
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/course"
	"llmmemory/internal/homework/course/oracle"
	"llmmemory/internal/homework/course/trace"
)

// Ensure that Same compares the function, the channel and the field of two differences, but no numbers.
func TestTheSameMistakeHasOtherNumbers(t *testing.T) {
	difference := func(kind trace.Kind, engine int, channel Channel, field string) *Difference {
		d := differs(channel, field, 1, 2)
		d.Op, d.Engine = trace.Op{Kind: kind, Engine: engine}, max(0, engine)
		return d
	}
	elsewhere := difference(trace.Append, 1, Counts, "ref_count[3]")
	elsewhere.Engine = 0
	one := difference(trace.Append, 0, Counts, "ref_count[3]")
	require.Equal(t, "ref_count[N]", one.Shape)
	for _, tc := range []struct {
		name  string
		other *Difference
		want  bool
	}{
		{"another block", difference(trace.Append, 1, Counts, "ref_count[17]"), true},
		{"many calls of the same function", difference(trace.Appends, 0, Counts, "ref_count[-1]"), true},
		{"another function", difference(trace.Free, 0, Counts, "ref_count[3]"), false},
		{"a call with NULL", difference(trace.Append, trace.None, Counts, "ref_count[3]"), false},
		{"another channel", difference(trace.Append, 0, Engine, "ref_count[3]"), false},
		{"in another engine than the call's", elsewhere, false},
		{"another field", difference(trace.Append, 0, Counts, "the counts"), false},
	} {
		require.Equal(t, tc.want, one.Same(tc.other), tc.name)
		require.Equal(t, tc.want, tc.other.Same(one), tc.name)
	}
}

var callsWithFacts = []struct {
	name   string
	blocks int32  // of the pool
	steps  string // the last one is the call
	facts  []Fact // that it has,
	absent []Fact // and those that it must not have
}{
	{"create with as many blocks as there are", 3, "create e0 1 33", []Fact{LastFree}, []Fact{NoneFree, FullLength, Long}},
	{"create with fewer", 3, "create e0 1 32", nil, []Fact{LastFree}},
	{"create with 16 blocks", 20, "create e0 1 256", nil, []Fact{Long, LastFree}},
	{"create with 17 blocks", 20, "create e0 1 257", []Fact{Long}, []Fact{LastFree}},
	{"an append into a block of its own", 2, "create e0 1 1; append e0 1 0", []Fact{OwnBlock}, []Fact{SharedBlock, NewPage, NewTable, LastFree, NearLimit}},
	{"an append into a shared block", 2, "create e0 1 1; fork e0 1 2; append e0 1 0", []Fact{SharedBlock, LastFree}, []Fact{OwnBlock, NewPage}},
	{"an append to the last free block", 2, "create e0 1 16; append e0 1 0", []Fact{NewPage, LastFree}, []Fact{OwnBlock, SharedBlock, NewTable}},
	{"an append without a free block", 1, "create e0 1 16; append e0 1 0", []Fact{NewPage, NoneFree}, []Fact{LastFree}},
	{"an append that needs a table", 20, "create e0 1 256; append e0 1 0", []Fact{NewPage, NewTable}, []Fact{NearLimit}},
	{"an append in logical block 239", 245, "create e0 1 3839; append e0 1 0", []Fact{OwnBlock}, []Fact{NearLimit}},
	{"an append in logical block 240", 245, "create e0 1 3840; append e0 1 0", []Fact{NewPage, NearLimit}, nil},
	{"one of three sequences", 5, "create e0 1 1; create e0 2 1; create e0 3 1; free e0 1", []Fact{HardToFind}, []Fact{NoneFree}},
	{"tables behind a slot that is NULL", 20, "create e0 1 257; move e0 1 1 2; fork e0 1 2", []Fact{Scattered}, []Fact{HardToFind}},
	{"tables without a gap", 20, "create e0 1 257; free e0 1", nil, []Fact{Scattered}},
	{"a call without any sequence", 3, "destroy e0", []Fact{NoSequences}, []Fact{NoneFree}},
	{"one of two", 5, "create e0 1 1; create e0 2 1; free e0 1", nil, []Fact{HardToFind}},
}

func TestTheFactsOfACallAreThoseOfTheStateBefore(t *testing.T) {
	for _, tc := range callsWithFacts {
		t.Run(tc.name, func(t *testing.T) {
			world, err := oracle.New()
			require.NoError(t, err)
			defer world.Close()
			ops, err := trace.Parse(strings.ReplaceAll(tc.steps, ";", "\n"))
			require.NoError(t, err)
			last := len(ops) - 1
			for _, op := range append([]trace.Op{{Kind: trace.Init, A: tc.blocks * course.BlockSize}}, ops[:last]...) {
				if op.Kind.Outside() {
					require.NotEmpty(t, world.Write(op))
					continue
				}
				require.NoError(t, world.Play(op).Err)
			}
			p := &player{expected: world}
			m := p.moment(ops[last])
			require.Subset(t, m.facts, tc.facts)
			for _, fact := range tc.absent {
				require.False(t, slices.Contains(m.facts, fact), string(fact))
			}
		})
	}
}

func TestTheStructsAreThoseOfTheHeader(t *testing.T) {
	require.Equal(t,
		[]uintptr{unsafe.Sizeof(course.Engine{}), unsafe.Offsetof(course.Engine{}.Total), unsafe.Offsetof(course.Engine{}.Free),
			unsafe.Offsetof(course.Engine{}.RefCount), unsafe.Offsetof(course.Engine{}.Active), unsafe.Offsetof(course.Node{}.Next)},
		[]uintptr{unsafe.Sizeof(engineStruct{}), unsafe.Offsetof(engineStruct{}.total), unsafe.Offsetof(engineStruct{}.free),
			unsafe.Offsetof(engineStruct{}.refCount), unsafe.Offsetof(engineStruct{}.active), unsafe.Offsetof(listNode{}.next)})
	require.Equal(t,
		[]uintptr{unsafe.Sizeof(course.Sequence{}), unsafe.Offsetof(course.Sequence{}.BlockTable), unsafe.Offsetof(course.Sequence{}.KVCount),
			unsafe.Offsetof(course.Sequence{}.Node), unsafe.Sizeof(course.L1Table{})},
		[]uintptr{unsafe.Sizeof(sequenceStruct{}), unsafe.Offsetof(sequenceStruct{}.blockTable), unsafe.Offsetof(sequenceStruct{}.kvCount),
			unsafe.Offsetof(sequenceStruct{}.node), unsafe.Sizeof(l1Table{})})
}

// Ensure that a State has the first MaxSequences sequences of the list and, if they are not among these, the sequences
// that the call names. Each named id is added only once, because the submission's list may repeat an id without end.
func TestAStateHasFewSequences(t *testing.T) {
	engine := oracle.EngineState{Sequences: make([]oracle.SequenceState, 1000)}
	for i := range engine.Sequences {
		engine.Sequences[i].ID = 1
	}
	engine.Sequences[998].ID, engine.Sequences[999].ID = 2, 3
	s := newState(engine, trace.Op{Kind: trace.Fork, A: 3, B: 1}, -1)
	require.Len(t, s.Sequences, MaxSequences+1)
	require.EqualValues(t, 3, s.Sequences[MaxSequences].ID)
}

func TestWhatTheHandoutDoesNotSayQuotesNoSentence(t *testing.T) {
	for name, d := range map[string]*Difference{
		"a call that does not come back": {Channel: Death, Hangs: true, Op: trace.Op{Kind: trace.Append}},
		"a crash":                        {Channel: Death, Op: trace.Op{Kind: trace.Append}},
		"a write outside":                {Channel: Heap, Field: "byte 1 after the engine", Op: trace.Op{Kind: trace.Append}},
		"a double free":                  {Channel: Heap, Field: Frees, Op: trace.Op{Kind: trace.Append}},
	} {
		require.Empty(t, d.Sentence("Find the sequence."), name)
	}
	d := &Difference{Channel: List, Op: trace.Op{Kind: trace.Append}}
	require.Equal(t, "Find the sequence.", d.Sentence("Find the sequence."))
}
