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
	"llmmemory/internal/grade/directed"
	"llmmemory/internal/grade/random"
	"llmmemory/internal/grade/reproduce"
)

const root = "../../../"

// Every program compiles with the course's flags and a correct submission runs
// it to its end.
func TestEveryTraceIsAProgram(t *testing.T) {
	cases, err := directed.Cases()
	require.NoError(t, err)
	for i := range uint64(8) {
		cases = append(cases, directed.Case{Name: "random", Ops: random.Trace(i, 300, true)})
	}
	dir := t.TempDir()
	object := filepath.Join(dir, "llm_memory.o")
	gcc(t, "-c", root+"testdata/submissions/correct/llm_memory.c", "-o", object)
	for _, c := range cases {
		if c.Advice {
			continue
		}
		d := &compare.Difference{Step: len(c.Ops) - 1, Field: "kv_count", Expected: "1", Actual: "2"}
		file := filepath.Join(dir, "this.c")
		require.NoError(t, os.WriteFile(file, []byte(reproduce.Program(c.Name, c.Ops, d)), 0o644))
		program := filepath.Join(dir, "this")
		gcc(t, file, object, "-o", program)
		require.NoError(t, exec.Command(program).Run(), c.Name)
	}
}

func TestTheLastCallIsTheOneToLookAt(t *testing.T) {
	ops, err := trace.Parse("init e0 640\ncreate e0 -2147483648 20\nhole e0 -2147483648 0\nfree e0 -2147483648\nappend e0 1 1")
	require.NoError(t, err)
	text := reproduce.Program("task2_x", ops, &compare.Difference{Step: 3, Field: "engine->free_local_blocks", Expected: "10", Actual: "9"})
	require.Contains(t, text, "/* engine->free_local_blocks: expected 10, was 9. Set a breakpoint here. */\n"+
		"    free_sequence(e[0], -2147483647 - 1);\n    return 0;\n")
	require.NotContains(t, text, "take_out")
}

func gcc(t *testing.T, args ...string) {
	t.Helper()
	all := append(append(strings.Fields(build.CourseFlags), "-I"+root), args...)
	out, err := exec.Command("gcc", all...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
