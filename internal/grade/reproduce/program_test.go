package reproduce_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/course/trace"
	"llmmemory/internal/grade/build"
	"llmmemory/internal/grade/compare"
	"llmmemory/internal/grade/reproduce"
	"llmmemory/internal/grade/traces"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

func TestMain(m *testing.M) {
	remove := level.CheapCompiler("-O0")
	status := m.Run()
	remove()
	os.Exit(status)
}

const root = "../../../"

// Ensure that every program compiles with the course's flags and a correct submission runs it to
// its end. An ordinary run takes one trace for each kind of step.
func TestEveryTraceIsAProgram(t *testing.T) {
	level.SkipQuick(t)
	cases, err := traces.Directed()
	require.NoError(t, err)
	for i := range uint64(8) {
		cases = append(cases, traces.Case{Name: "random", Ops: traces.Random(i, 300, true)})
	}
	dir := t.TempDir()
	object := filepath.Join(dir, "llm_memory.o")
	gcc(t, "-c", corpus.Path("correct/llm_memory.c"), "-o", object)
	seen, made := map[kind]bool{}, 0
	for _, c := range cases {
		if c.Advice || len(c.Ops) > 1000 || !level.Long() && !seesNew(seen, c.Ops) {
			continue
		}
		d := &compare.Difference{Step: len(c.Ops) - 1, Field: "kv_count", Expected: "1", Actual: "2"}
		file := filepath.Join(dir, "this.c")
		require.NoError(t, os.WriteFile(file, []byte(reproduce.Program(c.Name, c.Ops, d)), 0o644))
		program := filepath.Join(dir, "this")
		gcc(t, file, object, "-o", program)
		require.NoError(t, exec.Command(program).Run(), c.Name)
		made++
	}
	require.Greater(t, made, 5)
}

// A kind is one of the ways in which a step is written in C.
type kind struct {
	trace.Kind
	given bool
}

// seesNew reports whether a trace has a kind of step that no trace before had.
func seesNew(seen map[kind]bool, ops []trace.Op) (sees bool) {
	for _, op := range ops {
		k := kind{op.Kind, op.Given}
		sees = sees || !seen[k]
		seen[k] = true
	}
	return sees
}

// Ensure that a program ends with 1 if the submission is wrong, and with 0 if it is right.
func TestAProgramChecksItself(t *testing.T) {
	level.SkipQuick(t)
	kit, err := build.NewKit()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, kit.Close()) })
	right := filepath.Join(t.TempDir(), "right.o")
	gcc(t, "-c", corpus.Path("correct/llm_memory.c"), "-o", right)
	for _, c := range []struct{ id, ops string }{
		{"I11", "init e0 640"},                                                             // a field of the engine
		{"I6", "init e0 640"},                                                              // a count
		{"C2", "given init e0 640\ncreate e0 1 0"},                                         // a pointer
		{"C30", "given init e0 640\ngiven create e0 1 1\ncreate e0 2 1"},                   // the order of the list
		{"C34", "given init e0 640\ncreate e0 1 5"},                                        // a sequence
		{"C17", "init e0 640\ncreate e0 -2147483648 5"},                                    // an entry of a table
		{"F6", "given init e0 640\ngiven create e0 1 5\nfree e0 1"},                        // a leak
		{"F11", "given init e0 640\nfree e0 1"},                                            // a value
		{"C13", "given init e0 640\ncreate e0 1 300"},                                      // an allocation where none may be
		{"A8", "given init e0 640\ngiven create e0 1 9\ngiven fork e0 1 2\nappend e0 1 5"}, // a byte
		{"F13", "given init e0 64000\ngiven create e0 1 20\nmove e0 1 9 0\nfree e0 1"},
		{"A28", "append null 1 1"}, // it dies
		{"A27", "given init e0 64000\ngiven create e0 1 4090\nappend e0 1 7"},
	} {
		t.Run(c.id, func(t *testing.T) {
			source := corpus.Source(t, c.id)
			p, err := kit.Build("wrong", []byte(source))
			require.NoError(t, err)
			ops, err := trace.Parse(c.ops)
			require.NoError(t, err)
			r, err := compare.Play(p.Native(), ops)
			require.NoError(t, err)
			require.NotNil(t, r.First())
			dir := t.TempDir()
			file, object, wrong := filepath.Join(dir, "this.c"), filepath.Join(dir, "this.o"), filepath.Join(dir, "wrong.c")
			require.NoError(t, os.WriteFile(file, []byte(reproduce.Program(c.id, ops, r.First())), 0o644))
			require.NoError(t, os.WriteFile(wrong, []byte(source), 0o644))
			gcc(t, "-c", file, "-o", object)
			gcc(t, object, right, "-o", filepath.Join(dir, "right"))
			gcc(t, object, wrong, "-o", filepath.Join(dir, "wrong"))
			out, err := exec.Command(filepath.Join(dir, "right")).CombinedOutput()
			require.NoError(t, err, "%s", out)
			out, err = exec.Command(filepath.Join(dir, "wrong")).CombinedOutput()
			require.Error(t, err, "%s", out)
		})
	}
}

func gcc(t *testing.T, args ...string) {
	t.Helper()
	all := append(append(strings.Fields(build.CourseFlags), level.Pick("-O0", "-O2"), "-I"+root), args...)
	out, err := exec.Command("gcc", all...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
