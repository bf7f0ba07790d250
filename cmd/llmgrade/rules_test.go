package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/grade"
	"llmmemory/internal/homework/grade/reporting/class"
)

func TestEveryLineAndRowNamesTheRules(t *testing.T) {
	all := []class.Submission{{Name: "ada", File: "ada.c"}, {Name: "bob", File: "bob.c"}, {Name: "cy", File: "cy.c"}}
	pages, err := newPages(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, pages.begin(all, all, &grade.Report{Rules: "3.test"}))
	grader := func(s class.Submission) (*grade.Report, error) {
		if s.Name == "bob" {
			return nil, errors.New("no gcc")
		}
		r := &grade.Report{File: s.File, Rules: "3.test"}
		if s.Name == "cy" {
			r.Rejected = &grade.Rejection{Stage: grade.NoFile, Text: "empty"}
		}
		return r, pages.Save(s.Name, "key", r)
	}
	var out bytes.Buffer
	status := 0
	o := options{json: true, jobs: 2}
	require.ErrorContains(t, o.all(t.Context(), &out, io.Discard, all, "3.test", grader, pages, &status), "no gcc")
	lines := 0
	for text := range bytes.Lines(out.Bytes()) {
		var l line
		require.NoError(t, json.Unmarshal(text, &l))
		require.Equal(t, "3.test", l.Rules, "%s", text)
		require.Equal(t, l.File == "bob.c", l.Trouble != "")
		lines++
	}
	require.Equal(t, len(all), lines)

	require.NoError(t, pages.report(&out))
	merged := t.TempDir()
	code, _, said := run(t, "merge", "--html", merged, pages.Path)
	require.Zero(t, code, said)
	for _, dir := range []string{pages.Path, merged} {
		rows := grades(t, dir)
		require.Len(t, rows, 1+len(all))
		for _, row := range rows[1:] {
			require.Equal(t, "3.test", row[slices.Index(rows[0], "rules")], row)
		}
	}
}
