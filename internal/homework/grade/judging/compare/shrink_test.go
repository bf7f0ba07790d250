package compare_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/judging/compare"
)

// faulty plays a trace on an imaginary submission with two mistakes. append_kv for id 3 changes the pool wrongly after
// any fork. free_sequence for id 1 makes a mistake with allocations.
func faulty(ops []trace.Op) (*compare.Difference, error) {
	forked := false
	for i, op := range ops {
		forked = forked || op.Kind == trace.Fork
		switch {
		case op.Kind == trace.Append && op.A == 3 && forked:
			return &compare.Difference{Step: i, Op: op, Channel: compare.Pool, Shape: "byte N"}, nil
		case op.Kind == trace.Free && op.A == 1:
			return &compare.Difference{Step: i, Op: op, Channel: compare.Heap, Shape: "count"}, nil
		}
	}
	return nil, nil
}

func steps(t *testing.T, text string) []trace.Op {
	t.Helper()
	ops, err := trace.Parse(text)
	require.NoError(t, err)
	return ops
}

func TestOnlyWhatTheDifferenceNeedsIsLeft(t *testing.T) {
	ops := steps(t, "init e0 6400\ncreate e0 1 9\ncreate e0 3 9\nappend e0 3 1\nfork e0 3 4\nappend e0 4 2\nappend e0 3 2\nfree e0 3")
	d, err := faulty(ops)
	require.NoError(t, err)
	short, last, err := compare.Shrink(ops, d, faulty, 1000)
	require.NoError(t, err)
	require.Equal(t, steps(t, "init e0 64\nfork e0 1 1\nappend e0 3 1"), short)
	require.Equal(t, 2, last.Step)
}

func TestItDoesNotSlipToAnotherMistake(t *testing.T) {
	ops := steps(t, "init e0 640\nfork e0 2 4\nappend e0 3 1")
	d, err := faulty(ops)
	require.NoError(t, err)
	play := func(ops []trace.Op) (*compare.Difference, error) {
		if len(ops) < 3 { // whatever is shorter shows something else
			return &compare.Difference{Step: len(ops) - 1, Op: ops[len(ops)-1], Channel: compare.List}, nil
		}
		return faulty(ops)
	}
	short, last, err := compare.Shrink(ops, d, play, 1000)
	require.NoError(t, err)
	require.Len(t, short, 3)
	require.Equal(t, compare.Pool, last.Channel)
}

func TestWithoutATryTheFirstFindingStands(t *testing.T) {
	ops := steps(t, "init e0 640\nfork e0 2 4\nappend e0 3 1\nfree e0 1")
	d, err := faulty(ops)
	require.NoError(t, err)
	short, last, err := compare.Shrink(ops, d, faulty, 0)
	require.NoError(t, err)
	require.Equal(t, ops[:3], short)
	require.Equal(t, d, last)
}

func TestAShortTraceCallsOnlyEnginesThatItHasMade(t *testing.T) {
	for _, last := range []string{"append e1 1 1", "append null 1 1"} {
		ops := steps(t, "init e0 640\ninit e1 640\ncreate e1 3 9\ninit e2 640\ndestroy e1\ninit e1 640\n"+last)
		play := func(ops []trace.Op) (*compare.Difference, error) { // whatever comes before the call
			last := ops[len(ops)-1]
			return &compare.Difference{Step: len(ops) - 1, Op: last, Channel: compare.Pool, Engine: last.Engine}, nil
		}
		d, err := play(ops)
		require.NoError(t, err)
		short, _, err := compare.Shrink(ops, d, play, 1000)
		require.NoError(t, err)
		want := "init e1 64\n" + last
		if ops[6].Engine == trace.None {
			want = last
		}
		require.Equal(t, steps(t, want), short)
	}
}

// Ensure that Shrink uses small ids, and replaces a step of several calls by a single call, as long as the difference
// stays.
func TestATraceNamesItsSequencesPlainly(t *testing.T) {
	for _, c := range []struct{ name, ops, want string }{
		{"the smallest ids", "init e0 1\ncreate e0 -3 1\nfork e0 -3 -100\nappend e0 -100 1", "init e0 1\ncreate e0 1 1\nfork e0 1 2\nappend e0 2 1"},
		{"in order", "init e0 1\ncreate e0 2 1\nfork e0 2 1\nappend e0 1 1", "init e0 1\ncreate e0 1 1\nfork e0 1 2\nappend e0 2 1"},
		{"one call", "init e0 1\ncreates e0 1 1 1\nforks e0 1 2 1\nappends e0 1 1 1\nfrees e0 1 1\nappend e0 1 1", "init e0 1\ncreate e0 1 1\nfork e0 1 2\nappend e0 1 1\nfree e0 1\nappend e0 1 1"},
		{"two calls stay", "init e0 1\ncreates e0 -7 1 2\nappend e0 -7 1", "init e0 1\ncreates e0 -7 1 2\nappend e0 -7 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ops := steps(t, c.ops)
			last := len(ops) - 1
			play := func(ops []trace.Op) (*compare.Difference, error) {
				if len(ops) != last+1 || ops[1].Kind == trace.Creates && ops[1].C < 2 && c.name != "one call" {
					return nil, nil
				}
				if ops[2].Kind.Single() == trace.Fork && (ops[2].A != ops[1].A || ops[2].A == ops[2].B || c.name != "one call" && ops[3].A != ops[2].B) {
					return nil, nil
				}
				return &compare.Difference{Step: last, Op: ops[last], Channel: compare.Pool}, nil
			}
			d, err := play(ops)
			require.NoError(t, err)
			short, _, err := compare.Shrink(ops, d, play, 1000)
			require.NoError(t, err)
			require.Equal(t, steps(t, c.want), short)
		})
	}
}

// Ensure that records, ids and lengths of a trace, which are numbers of a student, neither count as calls nor end the
// search for a short trace.
func TestOnlyCallsCost(t *testing.T) {
	for _, text := range []string{
		"appends e0 3 2000000000 20", "forks e0 1 2000000000 20", "creates e0 2000000000 2147483647 20", "frees e0 2000000000 20",
	} {
		ops := steps(t, "init e0 640\nfork e0 2 4\n"+text+"\nappend e0 3 1")
		d, err := faulty(ops)
		require.NoError(t, err)
		short, _, err := compare.Shrink(ops, d, faulty, 100)
		require.NoError(t, err)
		require.Equal(t, steps(t, "init e0 64\nfork e0 1 1\nappend e0 3 1"), short, text)
	}
}

func TestPatienceGrowsWithTheCallsUpToALimit(t *testing.T) {
	const base = "init e0 640\ncreate e0 1 1\n"
	huge := base
	for range 2000 {
		huge += "appends e0 1 1 100000\n"
	}
	require.Equal(t, compare.Patience, compare.PatienceWith(steps(t, base)))
	for _, c := range []struct {
		name, text    string
		call, process time.Duration // more than compare.Patience has
	}{
		{"1,000 calls", "appends e0 1 1 1000\n", 100 * time.Millisecond, 100 * time.Millisecond},
		{"twice", "appends e0 1 1 1000\nforks e0 1 2 1000\n", 100100 * time.Microsecond, 200100 * time.Microsecond},
		{"large records", "appends e0 1 303700050 10\nappends e0 1 2147483000 10\n", 10 * time.Microsecond, 20 * time.Microsecond},
		{"many sequences", "creates e0 2 1 10000\nfrees e0 2 10\n", 10001 * time.Millisecond, 10011001 * time.Microsecond},
		{"large ids", "forks e0 1 2147483000 10\ncreates e0 2147483000 1 10\nfrees e0 2147483000 10\n", 21 * time.Microsecond, 53 * time.Microsecond},
		{"many calls", "appends e0 1 1 100000\n", 5 * time.Minute, 5 * time.Minute},
		{"as many as a trace can have", huge, 5 * time.Minute, 30 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := compare.PatienceWith(steps(t, base+c.text))
			require.Equal(t, c.call, p.Call-compare.Patience.Call)
			require.Equal(t, c.process, p.Process-compare.Patience.Process)
		})
	}
	unparsed := trace.Op{Kind: trace.Creates, A: 1, B: math.MaxInt32, C: math.MaxInt32} // Parse refuses so many calls
	require.Equal(t, 5*time.Minute, compare.PatienceWith([]trace.Op{unparsed, unparsed}).Call-compare.Patience.Call)
}
