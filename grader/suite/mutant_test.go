package suite_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mutant is one entry of mutants.txt, which explains the format.
type mutant struct {
	id, what string
	kind     string // "", "memcheck", "rejected" or "equivalent"
	expect   string // a test that must fail
	hunks    []hunk
}

type hunk struct{ before, after string }

func parse(t *testing.T, text string) []mutant {
	t.Helper()
	var all []mutant
	for n, line := range strings.Split(text, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		if id, found := strings.CutPrefix(line, "== "); found {
			name, what, found := strings.Cut(id, "  ")
			require.True(t, found, "line %d", n+1)
			all = append(all, mutant{id: name, what: what, hunks: make([]hunk, 1)})
			continue
		}
		require.NotEmpty(t, all, "line %d", n+1)
		all[len(all)-1].add(t, line)
	}
	return all
}

func (m *mutant) add(t *testing.T, line string) {
	t.Helper()
	h := &m.hunks[len(m.hunks)-1]
	switch line[0] {
	case '@':
		m.hunks = append(m.hunks, hunk{})
	case '-':
		h.before += line[1:] + "\n"
	case '+':
		h.after += line[1:] + "\n"
	case ' ':
		h.before += line[1:] + "\n"
		h.after += line[1:] + "\n"
	default:
		word, rest, _ := strings.Cut(line, " ")
		if word == "expect" {
			m.expect = rest
			return
		}
		require.Contains(t, []string{"memcheck", "rejected", "equivalent"}, line, m.id)
		m.kind = line
	}
}

// apply changes the correct submission; every place must be there exactly once.
func (m *mutant) apply(t *testing.T, source string) string {
	t.Helper()
	for _, h := range m.hunks {
		require.NotEmpty(t, h.before, m.id)
		require.NotEqual(t, h.before, h.after, m.id)
		require.Equal(t, 1, strings.Count("\n"+source, "\n"+h.before), "%s: these lines must occur once:\n%s", m.id, h.before)
		source = strings.TrimPrefix(strings.Replace("\n"+source, "\n"+h.before, "\n"+h.after, 1), "\n")
	}
	return source
}
