package compare_test

import (
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/isolation/build"
	"llmmemory/internal/homework/grade/judging/compare"
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

func played(t *testing.T, text string, changes ...string) (program string, ops []trace.Op, r compare.Result) {
	t.Helper()
	level.SkipQuick(t)
	k, err := kit()
	require.NoError(t, err)
	p, err := k.Build("a test's", []byte(corpus.Changed(t, changes...)))
	require.NoError(t, err)
	ops, err = trace.Parse(text)
	require.NoError(t, err)
	r, err = compare.Play(p.Native(), ops)
	require.NoError(t, err)
	return p.Native(), ops, r
}

// Ensure that Play finds every forbidden write to memory. The grader compares only the two ends of a large pool; a
// write to the rest of the pool, or far behind a small pool, ends the process. Also ensure that the submission may set
// a pointer to any value.
func TestAWriteAnywhereIsSeen(t *testing.T) {
	const (
		store = "    records[offset] = kv_data;\n"
		free  = "    drop_blocks(engine, seq);\n    free_tables(seq);\n"
		small = "init e0 640\ncreate e0 1 1\nappend e0 1 7\n"
		frees = "init e0 640\ncreate e0 1 1\nfree e0 1\n"
		large = "init e0 64 3072\ncreate e0 1 20\nappend e0 1 7\nplace e0 1 2 50331648\ncount e0 1 40\nappend e0 1 8\n"
	)
	for _, c := range []struct {
		name, ops, place, code string
		channel                compare.Channel // empty: nothing differs
		says                   string
	}{
		{"right", large, store, "", "", ""},
		{"it writes into the middle", large, store, "    ((int *)engine->pool_base_ptr)[1 << 28] = 1;\n", compare.Death, ""},
		{"it writes beside its record", large, store, "    records[offset - 2] = 1;\n", compare.Pool, ""},
		{"it writes far behind a small pool", small, store, "    records[5000] = 1;\n", compare.Death, ""},
		{"it leaves no counts", frees, free, "    engine->ref_count = NULL;\n", compare.Counts, "engine->ref_count is NULL, but has to be an allocation of 40 bytes"},
		{"it leaves counts that cannot be read", frees, free, "    engine->ref_count = (int *)16;\n", compare.Counts, "engine->ref_count is 0x10, which is no allocation, but has to be an allocation of 40 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, r := played(t, c.ops, c.place, c.place+c.code)
			if c.channel == "" {
				require.Nil(t, r.First())
				return
			}
			require.NotNil(t, r.First())
			require.Equal(t, c.channel, r.First().Channel)
			require.Contains(t, r.First().Headline(), c.says)
			require.Equal(t, 2, r.First().Step)
		})
	}
}

// Ensure that Look distinguishes an endless list from an invalid pointer. Reading the list must take little of the
// grader's memory, however many allocations there are.
func TestAListWithoutAnEndCanBeRead(t *testing.T) {
	for next, broken := range map[string]string{"&seq->node": "", "NULL": "engine->active_seqs"} {
		const last = "    seq->node.next = "
		const many = "    for (int i = 0; i < 60000; i++) {\n        void *volatile kept = malloc(1);\n        (void)kept;\n    }\n" +
			"    for (int i = 1; i < 16; i++) {\n        seq->block_table[i] = seq->block_table[0];\n    }\n"
		program, ops, r := played(t, "init e0 640\ncreate e0 1 1\n", last+"head;\n", last+next+";\n"+many)
		require.Len(t, r.All, 1, "there is no state to go on from")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		scene, err := compare.Look(program, ops, r.First())
		require.NoError(t, err)
		runtime.ReadMemStats(&after)
		require.Equal(t, broken, scene.Actual.Broken)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(50<<20))
	}
}

// Ensure that Look reads as many reference counts of a destroyed engine as the engine had, even if total_local_blocks
// says more.
func TestTheCountsOfADestroyedEngineAreBounded(t *testing.T) {
	const frees = "    free(engine->ref_count);\n"
	program, ops, r := played(t, "init e0 640\ndestroy e0\n", frees, "    engine->total_local_blocks = 1000000;\n"+
		"    engine->ref_count = calloc(1000000, sizeof(int));\n    return -1;\n"+frees)
	scene, err := compare.Look(program, ops, r.First())
	require.NoError(t, err)
	require.EqualValues(t, 1000000, scene.Actual.Total)
	require.Equal(t, 10, len(scene.Actual.RefCount))
}
