package reproduce_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/isolation/build"
	"llmmemory/internal/homework/grade/judging/compare"
	"llmmemory/internal/homework/grade/judging/traces"
	"llmmemory/internal/homework/grade/reporting/reproduce"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

func TestMain(m *testing.M) {
	remove := level.CheapCompiler("-O0")
	status := m.Run()
	remove()
	os.Exit(status)
}

const root = "../../../../../"

// Ensure that the C program of each trace compiles with the course's flags. A correct submission must run it to the
// end. Without make exhaustive, the test takes one trace for each kind of step.
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
		if c.Advice || len(c.Ops) > 1000 || !level.Exhaustive() && !seesNew(seen, c.Ops) {
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

type kind struct {
	trace.Kind
	given bool
}

func seesNew(seen map[kind]bool, ops []trace.Op) (sees bool) {
	for _, op := range ops {
		k := kind{op.Kind, op.Given}
		sees = sees || !seen[k]
		seen[k] = true
	}
	return sees
}

type wrong struct{ name, source, ops string }

func TestAProgramChecksItself(t *testing.T) {
	level.SkipQuick(t)
	kit, err := build.NewKit()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, kit.Close()) })
	right := filepath.Join(t.TempDir(), "right.o")
	gcc(t, "-c", corpus.Path("correct/llm_memory.c"), "-o", right)
	const (
		init  = "given init e0 640\n"
		frees = "    unlink_node(seq);\n"
		walk  = "        node = node->next;\n        free_tables(seq);\n"
	)
	all := []wrong{
		{"a read of freed memory", corpus.Changed(t, walk, "        free_tables(seq);\n        node = node->next;\n"), "init e0 640\ncreate e0 1 1\ndestroy e0"},
		{"a write to freed memory", corpus.Changed(t, "    drop_blocks(engine, seq);\n    free_tables(seq);\n", "    free_tables(seq);\n    drop_blocks(engine, seq);\n"), init + "given create e0 1 20\nfree e0 1"},
		{"a table freed twice", corpus.Changed(t, frees, frees+"    free(seq->block_table[0]);\n"), init + "given create e0 1 1\nfree e0 1"},
		{"the pool is freed", corpus.Changed(t, "    free(engine->ref_count);\n    free(engine);\n    return 0;", "    free(engine->ref_count);\n    free(engine->pool_base_ptr);\n    free(engine);\n    return 0;"), init + "destroy e0"},
		{"the dummy head is freed", corpus.Changed(t, frees, "    void *volatile head = &engine->active_seqs;\n    free(head);\n"+frees), init + "given create e0 1 1\nfree e0 1"},
		{"a write behind an allocation", corpus.Changed(t, frees, "    ((volatile char *)engine)[40] = 0;\n"+frees), init + "given create e0 1 1\nfree e0 1"},
		{"a write in front of an allocation", corpus.Changed(t, frees, "    ((volatile int *)engine->ref_count)[-1]++;\n"+frees), init + "given create e0 1 1\nfree e0 1"},
		{"block_table has no size", corpus.Changed(t, "malloc(L1_PT_SIZE * sizeof *seq->block_table)", "malloc(L1_PT_SIZE * sizeof(int))", "i < L1_PT_SIZE; i++) {\n        seq->block_table[i] = NULL", "i < 8; i++) {\n        seq->block_table[i] = NULL"), init + "create e0 1 1"},
		{"a table has no size", corpus.Changed(t, "int *l2 = malloc(L2_PT_SIZE * sizeof *l2);", "int *l2 = malloc(L2_PT_SIZE);", "for (int i = 0; i < L2_PT_SIZE; i++) {\n            l2", "for (int i = 0; i < 4; i++) {\n            l2"), init + "create e0 1 1"},
		{"a write in front of the pool", corpus.Changed(t, "    records[offset] = kv_data;\n", "    records[offset] = kv_data;\n    records[-3] = 0;\n"), init + "given create e0 1 1\nappend e0 1 5"},
		{"a write behind the pool", corpus.Changed(t, "    records[offset] = kv_data;\n", "    records[offset] = kv_data;\n    records[17] = 0;\n"), "given init e0 68\ngiven create e0 1 1\nappend e0 1 5"},
		{"a write of what is there", corpus.Changed(t, frees, "    *(volatile int *)engine->pool_base_ptr = *(int *)engine->pool_base_ptr;\n"+frees), init + "given create e0 1 1\nfree e0 1"},
		{"a failed assert", corpus.Changed(t, "#include <limits.h>", "#include <assert.h>\n#include <limits.h>", frees, frees+"    assert(seq->kv_count > 5);\n"), init + "given create e0 1 1\nfree e0 1"},
	}
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
		{"I7", "init e0 640"}, // an allocation that is too small
	} {
		all = append(all, wrong{c.id, corpus.Source(t, c.id), c.ops})
	}
	for _, c := range level.First(3, all) {
		t.Run(c.name, func(t *testing.T) {
			c.requireCaught(t, kit, right)
		})
	}
}

// requireCaught requires that the program succeeds with the correct submission and fails with the wrong one.
func (c wrong) requireCaught(t *testing.T, kit *build.Kit, right string) {
	t.Helper()
	p, err := kit.Build("wrong", []byte(c.source))
	require.NoError(t, err)
	ops, err := trace.Parse(c.ops)
	require.NoError(t, err)
	r, err := compare.Play(p.Native(), ops)
	require.NoError(t, err)
	require.NotNil(t, r.First())
	dir := t.TempDir()
	file, object := filepath.Join(dir, "this.c"), filepath.Join(dir, "this.o")
	wrong := filepath.Join(filepath.Dir(p.Native()), "compiled.o") // with the course's flags
	require.NoError(t, os.WriteFile(file, []byte(reproduce.Program(c.name, ops, r.First())), 0o644))
	gcc(t, "-c", file, "-o", object)
	gcc(t, object, right, "-o", filepath.Join(dir, "right"))
	gcc(t, object, wrong, "-o", filepath.Join(dir, "wrong"))
	out, err := exec.Command(filepath.Join(dir, "right")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command(filepath.Join(dir, "wrong")).CombinedOutput()
	exit := (*exec.ExitError)(nil)
	require.ErrorAs(t, err, &exit, "%s", out)
	require.Equal(t, 1, exit.ExitCode(), "%s", out)
	require.NotEmpty(t, out)
	require.NotRegexp(t, `-1515870811|-572662307|allocat.*expected -?\d|list.*expected`, string(out))
}

func TestAProgramUnderValgrind(t *testing.T) {
	level.SkipNormal(t)
	if _, err := exec.LookPath("valgrind"); err != nil {
		t.Skip("no valgrind")
	}
	dir := t.TempDir()
	ops, err := trace.Parse("given init e0 640\ngiven create e0 1 1\nfree e0 1")
	require.NoError(t, err)
	for name, d := range map[string]*compare.Difference{
		"a leak":         {Step: 2, Op: ops[2], Channel: compare.Heap, Field: compare.Leaks, Expected: "nothing", Actual: "block_table of sequence 1: an allocation of 128 bytes"},
		"a double free":  {Step: 2, Op: ops[2], Channel: compare.Heap, Field: compare.Frees, Expected: "a live allocation", Actual: "block_table of sequence 1"},
		"an allocation":  {Step: 2, Op: ops[2], Channel: compare.Heap, Field: compare.Allocates, Expected: "none", Actual: "8 bytes"},
		"no allocation":  {Step: 2, Op: ops[2], Channel: compare.Counts, Field: "engine->ref_count", Expected: "an allocation of 40 bytes", Actual: "NULL"},
		"a returned one": {Step: 2, Op: ops[2], Channel: compare.Returned, Field: "the returned value", Expected: "0", Actual: "-1"},
	} {
		t.Run(name, func(t *testing.T) {
			file, program := filepath.Join(dir, "this.c"), filepath.Join(dir, "this")
			require.NoError(t, os.WriteFile(file, []byte(reproduce.Program(name, ops, d)), 0o644))
			gcc(t, file, corpus.Path("correct/llm_memory.c"), "-O2", "-o", program) // which gcc could inline malloc at
			for _, cmd := range []*exec.Cmd{exec.Command(program), exec.Command("valgrind", "-q", "--read-inline-info=no", "--error-exitcode=3", program)} {
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, "%s: %s", cmd.Args, out)
			}
		})
	}
}

func gcc(t *testing.T, args ...string) {
	t.Helper()
	all := append(strings.Fields(build.CourseFlags), level.Pick("-O0", "-O2"), "-I"+root)
	if _, err := exec.LookPath("ld.gold"); err == nil {
		all = append(all, "-fuse-ld=gold") // links in two thirds of ld's time
	}
	out, err := exec.Command("gcc", append(all, args...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
