package supervise_test

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/isolation/build"
	"llmmemory/internal/homework/grade/isolation/supervise"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

var kit = sync.OnceValues(func() (*build.Kit, error) { return build.NewKit() })

func TestMain(m *testing.M) {
	remove := level.CheapCompiler("-O0")
	status := m.Run()
	if k, err := kit(); err == nil && !testing.Short() {
		_ = k.Close()
	}
	remove()
	os.Exit(status)
}

func check(t *testing.T, before, after string) ([]supervise.Finding, error) {
	t.Helper()
	kit, err := kit()
	require.NoError(t, err)
	program, err := kit.Build("a test's", []byte(corpus.Changed(t, before, after)))
	require.NoError(t, err)
	ops, err := trace.Parse("init e0 640\ncreate e0 1 20\nfork e0 1 2\nappend e0 2 7\nfree e0 1\ndestroy e0\n")
	require.NoError(t, err)
	watched, err := kit.Watched(program)
	require.NoError(t, err)
	return supervise.Memcheck(watched, supervise.Steps{Traces: [][]trace.Op{ops}})
}

func TestMemcheckFindsLeaksAndBadAccesses(t *testing.T) {
	level.SkipQuick(t)
	const end = "    free(engine->ref_count);\n    free(engine);\n"
	for name, c := range map[string]struct{ before, after, kind, unfinished string }{
		"nothing":            {end, end, "", ""},
		"a leak":             {end, "    free(engine);\n", "Leak_DefinitelyLost", ""},
		"what is kept":       {end, "    static int *volatile kept;\n    kept = engine->ref_count;\n    if (kept != NULL) {\n        free(engine);\n    }\n", "Leak_StillReachable", ""},
		"a write outside":    {end, "    ((volatile char *)engine)[40] = 0;\n" + end, "InvalidWrite", ""},
		"an end in a call":   {end, "    exit(7);\n" + end, "", "in the middle of a call"},
		"a signal in one":    {end, "    abort();\n" + end, "", "by aborted"},
		"more than there is": {end, "    while (malloc(1 << 20) != NULL) {\n    }\n" + end, "Leak_PossiblyLost", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, err := check(t, c.before, c.after)
			if c.unfinished != "" {
				require.ErrorIs(t, err, supervise.ErrUnfinished)
				require.ErrorContains(t, err, c.unfinished)
				return
			}
			require.NoError(t, err)
			if c.kind == "" {
				require.Empty(t, found)
				return
			}
			require.NotEmpty(t, found)
			require.Equal(t, c.kind, found[0].Kind)
		})
	}
}

func TestAValueThatWasNeverSetIsThatOfItsAllocation(t *testing.T) {
	level.SkipNormal(t)
	for name, c := range map[string]struct {
		before, after string
		functions     []string // that are charged
		says          string
	}{
		"of another function": {"    seq->kv_count = kv_count;\n",
			"    Sequence *volatile same = seq;\n    seq->kv_count = kv_count + (same->kv_count ^ same->kv_count);\n",
			[]string{"create_sequence", "fork_sequence"}, "sequence allocates the memory in line"},
		"of its own": {"    int *records = ",
			"    int *volatile unset = malloc(sizeof *unset);\n    offset += *unset == 77;\n    free(unset);\n    if (offset == 16) {\n        return -1;\n    }\n    int *records = ",
			[]string{"append_kv"}, "uninitialised"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, err := check(t, c.before, c.after)
			require.NoError(t, err)
			var functions []string
			for _, f := range found {
				functions = append(functions, f.Function)
			}
			require.Subset(t, c.functions, functions)
			require.Contains(t, fmt.Sprint(found), c.says)
		})
	}
}
