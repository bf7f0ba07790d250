package compare_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/grade/build"
	"llmmemory/internal/grade/compare"
	"llmmemory/internal/grade/corpus"
	"llmmemory/internal/grade/directed"
	"llmmemory/internal/grade/random"
	"llmmemory/internal/grade/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Launch()
	os.Exit(m.Run())
}

func read(t *testing.T, parts ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{"..", "..", ".."}, parts...)...))
	require.NoError(t, err)
	return text
}

func newKit(t *testing.T) *build.Kit {
	t.Helper()
	kit, err := build.NewKit(read(t, "llm_memory.h"), read(t, "grader", "runner.c"))
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
		d, err := compare.Play(program, c.Ops)
		require.NoError(t, err)
		if d != nil {
			return d
		}
	}
	for seed := range uint64(12) {
		d, err := compare.Play(program, random.Trace(seed, 600, seed%2 == 1))
		require.NoError(t, err)
		if d != nil {
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

func TestMutantsDiffer(t *testing.T) {
	kit := newKit(t)
	mutants, err := corpus.Parse(string(read(t, "testdata", "submissions", "mutants.txt")))
	require.NoError(t, err)
	correct := string(read(t, "testdata", "submissions", "correct", "llm_memory.c"))
	for _, m := range mutants {
		t.Run(m.ID, func(t *testing.T) {
			t.Parallel()
			source, err := m.Apply(correct)
			require.NoError(t, err)
			program, err := kit.Build(m.ID, []byte(source))
			if m.Kind == corpus.Rejected {
				require.ErrorIs(t, err, build.ErrRejected)
				return
			}
			require.NoError(t, err)
			found := difference(t, program.Native())
			switch m.Kind {
			case corpus.Wrong:
				require.NotNil(t, found, m.What)
			case corpus.Equivalent:
				require.Nil(t, found, m.What)
			}
		})
	}
}
