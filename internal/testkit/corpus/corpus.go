// Package corpus has submissions for tests of graders: wrong ones, and some that do the same as the correct
// submission. Each is the correct submission in testdata/submissions with one named change. mutants.txt in that folder
// explains the format.
package corpus

import (
	"fmt"
	"slices"
	"strings"
)

// A Mutant is one entry of mutants.txt.
type Mutant struct {
	ID, What string
	Kind     Kind
	Expect   string // a test of grader/suite that must fail
	hunks    []hunk
}

// A Kind says what must detect a Mutant.
type Kind string

// The kinds.
const (
	Wrong      Kind = ""           // any grader, by its behaviour
	Memcheck   Kind = "memcheck"   // only Memcheck
	Rejected   Kind = "rejected"   // the compiler
	Unseen     Kind = "llmgrade"   // only llmgrade
	Equivalent Kind = "equivalent" // nothing, because it is correct
)

type hunk struct{ before, after string }

func parse(text string) ([]Mutant, error) {
	var all []Mutant
	for n, line := range strings.Split(text, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		if title, found := strings.CutPrefix(line, "== "); found {
			id, description, found := strings.Cut(title, "  ")
			if !found || slices.ContainsFunc(all, func(m Mutant) bool { return m.ID == id }) {
				return nil, fmt.Errorf("line %d: expected a unique ID, two spaces and what is wrong", n+1)
			}
			all = append(all, Mutant{ID: id, What: description, hunks: make([]hunk, 1)})
			continue
		}
		if len(all) == 0 || !all[len(all)-1].add(line) {
			return nil, fmt.Errorf("line %d is no line of a table of mutants: %s", n+1, line)
		}
	}
	return all, nil
}

// Typical returns the mutants of an ordinary test run. A wrong mutant can name the test of the C suite that must
// detect it. If several mutants name the same test, Typical takes only the first of them. It takes every fourth
// equivalent mutant. It takes all other mutants.
func Typical(mutants []Mutant) (typical []Mutant) {
	expected, equivalent := map[string]bool{}, 0
	for _, m := range mutants {
		switch {
		case m.Kind == Equivalent:
			equivalent++
			if equivalent%4 != 1 {
				continue
			}
		case m.Kind == Wrong && m.Expect != "":
			if expected[m.Expect] {
				continue
			}
			expected[m.Expect] = true
		}
		typical = append(typical, m)
	}
	return typical
}

func (m *Mutant) add(line string) bool {
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
			m.Expect = rest
			return true
		}
		m.Kind = Kind(line)
		return slices.Contains([]Kind{Memcheck, Rejected, Unseen, Equivalent}, m.Kind)
	}
	return true
}

// Apply returns source with the mutant's change. The old lines of each hunk must occur exactly once in source.
func (m *Mutant) Apply(source string) (string, error) {
	for _, h := range m.hunks {
		if n := strings.Count("\n"+source, "\n"+h.before); h.before == "" || h.before == h.after || n != 1 {
			return "", fmt.Errorf("%s: these lines occur %d times, not once:\n%s", m.ID, n, h.before)
		}
		source = strings.TrimPrefix(strings.Replace("\n"+source, "\n"+h.before, "\n"+h.after, 1), "\n")
	}
	return source, nil
}
