package compare_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/course/trace"
	"llmmemory/internal/grade/build"
	"llmmemory/internal/grade/compare"
	"llmmemory/internal/grade/directed"
	"llmmemory/internal/grade/random"
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
	cases, err := directed.Cases()
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
		r, err := compare.Play(program, random.Trace(seed, 600, seed%2 == 1))
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
