package trace

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestWhatIsPrintedCanBeParsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ops []Op
		var lines []string
		for range rapid.IntRange(0, 9).Draw(t, "steps") {
			op := Op{Kind: Kind(rapid.IntRange(0, int(kinds)-1).Draw(t, "kind")), Fail: rapid.IntRange(0, 3).Draw(t, "fail")}
			op.Engine = rapid.IntRange(None, Engines-1).Draw(t, "engine")
			if op.Kind == Init || op.Kind.Outside() {
				op.Engine = max(0, op.Engine)
			}
			for i, n := range []*int32{&op.A, &op.B, &op.C} {
				if i < facts[op.Kind].arguments {
					*n = rapid.Int32().Draw(t, "n")
				}
			}
			switch op.Kind {
			case Init:
				op.A = min(op.A, 1<<20)
				if op.A >= 0 && rapid.Bool().Draw(t, "large") {
					op.B = rapid.Int32Range(1, MaxLarge).Draw(t, "MiB")
				}
			case Forks, Appends:
				op.B, op.C = min(op.B, 1<<30), rapid.Int32Range(1, maxForks).Draw(t, "calls")
			case Creates:
				op.A, op.C = min(op.A, 1<<30), rapid.Int32Range(1, maxForks).Draw(t, "calls")
			case Frees:
				op.A, op.B = min(op.A, 1<<30), rapid.Int32Range(1, maxForks).Draw(t, "calls")
			}
			op.Given = !op.Kind.Outside() && op.Engine != None && op.Fail == 0 && rapid.Bool().Draw(t, "given")
			ops = append(ops, op)
			lines = append(lines, op.String()+" # a comment", "")
		}
		parsed, err := Parse(strings.Join(lines, "\n"))
		require.NoError(t, err)
		require.Equal(t, ops, parsed)
	})
}

func TestWhatIsWrongWithATraceIsSaid(t *testing.T) {
	for line, says := range map[string]string{
		"grow e0 1":              `line 2: "grow" is none of init, create`,
		"given hole e0 1 1":      "given stands before one of the calls",
		"given free null 1":      "free must name an engine",
		"given":                  "an empty line",
		"create e0 1":            "line 2: create wants an engine and 2 numbers",
		"create 1 2 3":           `line 2: "1" is no engine: e0 to e3, or null`,
		"create e4 2 3":          `"e4" is no engine`,
		"create e0 x 3":          `"x" is not an int`,
		"create e0 1 3000000000": "is not an int",
		"free e0 1 oom=0":        "oom=N names the N-th allocation, from 1",
		"init e0 64 3073":        "a large pool has 1 to 3072 MiB",
		"init e0 -1 2":           "a large pool has 1 to 3072 MiB",
		"init e0 2097152 2":      "at most 1 MiB in bytes",
		"init null 64":           "init must name an engine",
		"hole null 1 1":          "hole must name an engine",
		"init e0 2147483647":     "line 2: a trace has at most 100000 steps, and pools of 60 MiB in all",
	} {
		_, err := Parse("init e0 64\n" + line)
		require.ErrorIs(t, err, ErrSyntax, line)
		require.ErrorContains(t, err, says)
	}
}

func TestATraceThatIsTooLongIsRefused(t *testing.T) {
	_, err := Parse(strings.Repeat("free e0 1\n", maxSteps))
	require.NoError(t, err)
	_, err = Parse(strings.Repeat("free e0 1\n", maxSteps+1))
	require.ErrorIs(t, err, ErrSyntax)
}

func TestChildrenHaveIdsThatAreInts(t *testing.T) {
	for _, line := range []string{"forks e0 1 2 0", "forks e0 1 2 100001", "forks e0 1 2147483647 1"} {
		_, err := Parse(line)
		require.ErrorIs(t, err, ErrSyntax, line)
	}
}
