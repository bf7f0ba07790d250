package replay

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// switches are many changes of the source in one build: a function that is changed
// begins with a copy of itself for each change, which runs if that is asked for. The
// build reads the changed files in an overlay; the source knows nothing of it.
type switches struct {
	root   string
	copies map[string]map[string][]string // by file and function, the changed bodies
}

// add makes a change number: text of one function of a file below internal/scheduling, which occurs once.
func (s *switches) add(number int, m *mutant) error {
	path := filepath.Join(s.root, "internal/scheduling", m.file)
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if n := strings.Count(string(source), m.from); n != 1 {
		return fmt.Errorf("the text of the rule %q is %d times in %s, not once; where the source was rewritten, write the rule's text anew: %q", m.rule, n, m.file, m.from)
	}
	before, err := bodies(string(source))
	if err != nil {
		return err
	}
	after, err := bodies(strings.Replace(string(source), m.from, m.to, 1))
	if err != nil {
		return fmt.Errorf("the rule %q in %s: %w", m.rule, m.file, err)
	}
	changed := ""
	for name, body := range after {
		if was := before[name]; was.text != body.text {
			changed = name
		}
	}
	if changed == "" {
		return fmt.Errorf("the rule %q in %s is not in the body of a function", m.rule, m.file)
	}
	if s.copies[path] == nil {
		s.copies[path] = map[string][]string{}
	}
	end := ""
	if !after[changed].results {
		end = "; return"
	}
	s.copies[path][changed] = append(s.copies[path][changed], fmt.Sprintf("if rulechanged.Number == %d { %s%s }\n", number, after[changed].text, end))
	return nil
}

// A body is what a function does, with its braces.
type body struct {
	text    string
	at      int // in the file
	results bool
}

// bodies are those of the functions of a file, by receiver and name.
func bodies(source string) (map[string]body, error) {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	offset := func(p token.Pos) int { return files.Position(p).Offset }
	all := map[string]body{}
	for _, d := range f.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
			head := source[offset(d.Pos()):offset(d.Body.Pos())]
			all[head] = body{source[offset(d.Body.Pos()):offset(d.Body.End())], offset(d.Body.Pos()), d.Type.Results != nil}
		}
	}
	return all, nil
}

// write writes the overlay, for go build, and returns its path.
func (s *switches) write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	put := func(path, text string) {
		file := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		replace[path] = file
	}
	for path, copies := range s.copies {
		read, err := os.ReadFile(path)
		require.NoError(t, err)
		source := string(read)
		unchanged, err := bodies(source)
		require.NoError(t, err)
		names := slices.SortedFunc(maps.Keys(copies), func(a, b string) int { return unchanged[b].at - unchanged[a].at }) // from the end
		for _, name := range names {
			at := unchanged[name].at + 1
			source = source[:at] + "\n" + strings.Join(copies[name], "") + source[at:]
		}
		clause := regexp.MustCompile(`(?m)^package .*$`)
		put(path, clause.ReplaceAllString(source, "$0\n\nimport \"llmmemory/internal/rulechanged\"\n"))
	}
	put(filepath.Join(s.root, "internal", "rulechanged", "number.go"), "package rulechanged\n\nvar Number int\n")
	put(filepath.Join(s.root, "internal", "scheduling", "replay", "testdata", "verify", "rule_changed.go"), `package main

import "llmmemory/internal/rulechanged"

func init() { change = func(number int) { rulechanged.Number = number } }
`)
	text, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	file := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	return file
}
