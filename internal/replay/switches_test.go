package replay

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// variable is the environment variable that says which change is made; 0: none.
const variable = "LLM_RULE_CHANGED"

// switches are many changes of the source in one build: a function that is changed
// begins with a copy of itself for each change, which runs if that is asked for. The
// build reads the changed files in an overlay; the source knows nothing of it.
type switches struct {
	root   string
	copies map[string]map[string][]string // by file and function, the changed bodies
}

func newSwitches(root string) *switches { return &switches{root, map[string]map[string][]string{}} }

var errChange = errors.New("not a change of one function")

// add makes a change number: text of a file below internal, which occurs once.
func (s *switches) add(number int, rule, file, from, to string) error {
	path := filepath.Join(s.root, "internal", file)
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if n := strings.Count(string(source), from); n != 1 {
		return fmt.Errorf("%w: the text of the rule %q is %d times in %s, not once; where the source was rewritten, write the rule's text anew: %q", errChange, rule, n, file, from)
	}
	before, err := bodies(string(source))
	if err != nil {
		return err
	}
	after, err := bodies(strings.Replace(string(source), from, to, 1))
	if err != nil {
		return fmt.Errorf("%w: the rule %q in %s: %w", errChange, rule, file, err)
	}
	changed := ""
	for name, body := range after {
		if was, there := before[name]; !there || was.head != body.head || was.text != body.text && changed != "" {
			return fmt.Errorf("%w: the rule %q in %s", errChange, rule, file)
		} else if was.text != body.text {
			changed = name
		}
	}
	if changed == "" {
		return fmt.Errorf("%w: the rule %q in %s", errChange, rule, file)
	}
	if s.copies[path] == nil {
		s.copies[path] = map[string][]string{}
	}
	end := ""
	if !after[changed].results {
		end = "; return"
	}
	s.copies[path][changed] = append(s.copies[path][changed], fmt.Sprintf("if *ruleChanged == %d { %s%s }\n", number, after[changed].text, end))
	return nil
}

// A body is what a function does, with its braces.
type body struct {
	head, text string
	at         int // in the file
	results    bool
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
			all[head] = body{head, source[offset(d.Body.Pos()):offset(d.Body.End())], offset(d.Body.Pos()), d.Type.Results != nil}
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
	packages := map[string]string{}
	for path, copies := range s.copies {
		read, err := os.ReadFile(path)
		require.NoError(t, err)
		source := string(read)
		unchanged, err := bodies(source)
		require.NoError(t, err)
		names := make([]string, 0, len(copies))
		for name := range copies {
			names = append(names, name)
		}
		slices.SortFunc(names, func(a, b string) int { return unchanged[b].at - unchanged[a].at }) // from the end
		for _, name := range names {
			at := unchanged[name].at + 1
			source = source[:at] + "\n" + strings.Join(copies[name], "") + source[at:]
		}
		put(path, source)
		f, err := parser.ParseFile(token.NewFileSet(), "", read, parser.PackageClauseOnly)
		require.NoError(t, err)
		packages[filepath.Dir(path)] = f.Name.Name
	}
	for folder, name := range packages {
		put(filepath.Join(folder, "rule_changed.go"), fmt.Sprintf("package %s\n\nimport \"llmmemory/internal/rulechanged\"\n\nvar ruleChanged = &rulechanged.Number\n", name))
	}
	put(filepath.Join(s.root, "internal", "rulechanged", "number.go"), fmt.Sprintf(`package rulechanged

import (
	"os"
	"strconv"
)

var Number, _ = strconv.Atoi(os.Getenv(%q))
`, variable))
	put(filepath.Join(s.root, "internal", "replay", "testdata", "verify", "rule_changed.go"), `package main

import "llmmemory/internal/rulechanged"

func init() { change = func(number int) { rulechanged.Number = number } }
`)
	text, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	file := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	return file
}

// Ensure that a change that cannot be switched on by itself is refused.
func TestChangesAreOfOneFunction(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "internal"), 0o755))
	source := "package p\n\nvar x = 1\n\nfunc f() int { return 1 + x }\n\nfunc g() { x = 2 }\n"
	require.NoError(t, os.WriteFile(filepath.Join(root, "internal", "p.go"), []byte(source), 0o644))
	for _, c := range []struct {
		name, from, to string
		wantErr        bool
	}{
		{"a body", "1 + x", "2 + x", false},
		{"twice there", "x", "y", true},
		{"not there", "z", "y", true},
		{"a variable", "x = 1", "x = 3", true},
		{"a signature", "f() int", "f() uint", true},
		{"two bodies", "{ return 1 + x }\n\nfunc g() { x = 2 }", "{ return 2 }\n\nfunc g() { x = 3 }", true},
		{"not Go", "1 + x", "1 +", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := newSwitches(root).add(1, c.name, "p.go", c.from, c.to)
			if c.wantErr {
				require.ErrorIs(t, err, errChange)
				return
			}
			require.NoError(t, err)
		})
	}
}
