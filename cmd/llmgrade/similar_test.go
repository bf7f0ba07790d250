package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/corpus"
)

func TestSimilarSubmissionsAreListedAndNothingElseChanges(t *testing.T) {
	t.Parallel()
	class, out, starter := t.TempDir(), filepath.Join(t.TempDir(), "grades"), t.TempDir()
	style := func(name string) string { return corpus.Read(t, "styles/"+name) }
	hand := func(dir, name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	hand(class, "ada.c", style("flat.c"))
	hand(class, "bob.c", strings.NewReplacer("engine", "e", "seq", "s", "block", "b").Replace(style("flat.c")))
	hand(class, "cy.c", style("kernel.c"))
	hand(class, "notes.txt", "")
	status, said, stderr := run(t, "similar", "--html", out, class)
	require.Zero(t, status, stderr)
	require.Regexp(t, `^100 %  ada  bob\n1 pairs? of 3 submissions: `, said)
	text, err := os.ReadFile(filepath.Join(out, "similar.html"))
	require.NoError(t, err)
	require.Contains(t, string(text), "ada and bob: 100 %")
	require.Contains(t, string(text), "notes.txt")
	require.NoFileExists(t, filepath.Join(out, "grades.csv"))

	hand(starter, "starter.c", style("flat.c"))
	_, said, _ = run(t, "similar", "--html", out, "--starter", starter, class)
	require.Contains(t, said, "0 pairs of 3 submissions")
	for _, c := range []struct {
		wantErr string
		args    []string
	}{
		{"--threshold is 0: it has to be a percentage from 1 to 100", []string{"--threshold", "0", "--html", out, class}},
		{"no such file", []string{"--html", out, "--starter", "/nonexistent", class}},
		{"has no .c or .h file in it", []string{"--html", out, "--starter", t.TempDir(), class}},
		{`"html" not set`, []string{class}},
	} {
		status, _, stderr := run(t, append([]string{"similar"}, c.args...)...)
		require.Equal(t, 2, status)
		require.Contains(t, stderr, c.wantErr)
	}
}
