package corpus

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Path returns the path of a file of testdata/submissions.
func Path(name string) string {
	_, thisFile, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(thisFile), "../../../testdata/submissions", name)
}

// Read returns the text of a file of testdata/submissions.
func Read(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(Path(name))
	require.NoError(t, err)
	return string(text)
}

// Correct returns the text of the correct submission.
func Correct(t testing.TB) string {
	t.Helper()
	return Read(t, "correct/llm_memory.c")
}

// Mutants returns the mutants of a table in testdata/submissions, for example mutants.txt.
func Mutants(t testing.TB, table string) []Mutant {
	t.Helper()
	all, err := parse(Read(t, table))
	require.NoError(t, err)
	return all
}

// Source returns the source of the mutant that has this ID in mutants.txt.
func Source(t testing.TB, id string) string {
	t.Helper()
	all := Mutants(t, "mutants.txt")
	i := slices.IndexFunc(all, func(m Mutant) bool { return m.ID == id })
	require.GreaterOrEqual(t, i, 0, "no mutant %q", id)
	text, err := all[i].Apply(Correct(t))
	require.NoError(t, err)
	return text
}

// Changed returns the correct submission with changes. Each pair is a text in the submission and its replacement. Only
// the first occurrence of the text is replaced.
func Changed(t testing.TB, pairs ...string) string {
	t.Helper()
	text := Correct(t)
	for i := 0; i < len(pairs); i += 2 {
		before, after, found := strings.Cut(text, pairs[i])
		require.True(t, found, "it does not contain %q", pairs[i])
		text = before + pairs[i+1] + after
	}
	return text
}
