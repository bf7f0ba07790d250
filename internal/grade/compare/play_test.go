package compare_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/course/trace"
	"llmmemory/internal/grade/build"
	"llmmemory/internal/grade/compare"
	"llmmemory/internal/grade/traces"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

func read(t *testing.T, parts ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{"..", "..", ".."}, parts...)...))
	require.NoError(t, err)
	return text
}

func newKit(t *testing.T) *build.Kit {
	t.Helper()
	level.SkipQuick(t)
	kit, err := build.NewKit()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, kit.Close()) })
	return kit
}

// difference plays the directed cases that cost points, and some random traces,
// until one shows a difference.
func difference(t *testing.T, program string) *compare.Difference {
	t.Helper()
	cases, err := traces.Directed()
	require.NoError(t, err)
	for _, c := range cases {
		if c.Advice {
			continue
		}
		r, err := compare.Play(program, c.Ops)
		require.NoError(t, err)
		if d := r.First(); d != nil {
			return d
		}
	}
	for seed := range uint64(12) {
		r, err := compare.Play(program, traces.Random(seed, 600, seed%2 == 1))
		require.NoError(t, err)
		if d := r.First(); d != nil {
			return d
		}
	}
	return nil
}

func TestTheCorrectSubmissionDiffersNowhere(t *testing.T) {
	program, err := newKit(t).Build("correct", read(t, "testdata", "submissions", "correct", "llm_memory.c"))
	require.NoError(t, err)
	require.Nil(t, difference(t, program.Native()))
}

// A pool of 3 GiB takes address space and next to no memory: the ends of it are
// compared, and whoever touches the rest dies.
func TestALargePoolIsJudgedByItsEnds(t *testing.T) {
	source := string(read(t, "testdata", "submissions", "correct", "llm_memory.c"))
	middle := corpus.Change("middle", "    records[offset] = kv_data;\n", "    records[offset] = kv_data;\n    ((int *)engine->pool_base_ptr)[1 << 28] = 1;\n")
	beside := corpus.Change("beside", "    records[offset] = kv_data;\n", "    records[offset] = kv_data;\n    records[offset - 2] = 1;\n")
	ops, err := trace.Parse("init e0 64 3072\ncreate e0 1 20\nappend e0 1 7\nplace e0 1 2 50331648\ncount e0 1 40\nappend e0 1 8\n")
	require.NoError(t, err)
	kit := newKit(t)
	for _, c := range []struct {
		name    string
		change  *corpus.Mutant
		channel compare.Channel
		step    int
	}{
		{name: "right"},
		{"it writes into the middle", &middle, compare.Death, 2},
		{"it writes beside its record", &beside, compare.Pool, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := source
			if c.change != nil {
				text, err = c.change.Apply(source)
				require.NoError(t, err)
			}
			program, err := kit.Build(c.name, []byte(text))
			require.NoError(t, err)
			r, err := compare.Play(program.Native(), ops)
			require.NoError(t, err)
			if c.change == nil {
				require.Nil(t, r.First())
				return
			}
			require.NotNil(t, r.First())
			require.Equal(t, c.channel, r.First().Channel)
			require.Equal(t, c.step, r.First().Step)
		})
	}
}

// Behind the bytes that are watched, nothing can be touched.
func TestAWriteFarBehindThePoolIsSeen(t *testing.T) {
	source := string(read(t, "testdata", "submissions", "correct", "llm_memory.c"))
	change := corpus.Change("far", "    records[offset] = kv_data;\n", "    records[offset] = kv_data;\n    records[5000] = 1;\n")
	text, err := change.Apply(source)
	require.NoError(t, err)
	program, err := newKit(t).Build("far", []byte(text))
	require.NoError(t, err)
	ops, err := trace.Parse("init e0 640\ncreate e0 1 1\nappend e0 1 7\n")
	require.NoError(t, err)
	r, err := compare.Play(program.Native(), ops)
	require.NoError(t, err)
	require.NotNil(t, r.First())
	require.Equal(t, compare.Death, r.First().Channel)
}
