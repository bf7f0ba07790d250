// Package mutants changes a program in one place at a time, to measure how many changes its tests notice.
//
// The changes are made in the syntax tree: a comparison is inverted, or a call or an assignment is left out. All of
// them are in one test binary, and an environment variable selects one. The sources do not know of it: the build
// reads changed copies of them through an overlay.
package mutants

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// variable selects the change; 0 selects none.
const variable = "LLM_MUTANT"

// A Program is the test binary of a package, with changes.
type Program struct {
	binary, dir string
	places      []string // change i+1 is at places[i]
	replace     map[string]string
}

// Build compiles the tests of the package in the current folder, with changes of the given files, which are relative
// to the current folder. Checks of invariants are not changed.
func Build(t *testing.T, files ...string) *Program {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	p := &Program{binary: filepath.Join(t.TempDir(), "changed.test"), dir: dir, replace: map[string]string{}}
	for _, pattern := range files {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, found, pattern)
		for _, file := range found {
			if !strings.HasSuffix(file, "_test.go") {
				p.change(t, file)
			}
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": p.replace})
	require.NoError(t, err)
	list := filepath.Join(t.TempDir(), "overlay.json")
	require.NoError(t, os.WriteFile(list, overlay, 0o600))
	cmd := exec.Command("go", "test", "-c", "-buildvcs=false", "-vet=off", "-ldflags=-s -w", "-overlay", list, "-o", p.binary, ".")
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", text)
	return p
}

// change adds every change of a file to the overlay.
func (p *Program) change(t *testing.T, file string) {
	t.Helper()
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, file, source, parser.SkipObjectResolution)
	require.NoError(t, err)
	e := &editor{files: files, places: p.places}
	for _, d := range f.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil && !strings.HasPrefix(strings.ToLower(d.Name.Name), "check") {
			ast.Inspect(d.Body, e.visit)
		}
	}
	p.places = e.places
	p.put(t, file, e.apply(source))
	p.put(t, filepath.Join(filepath.Dir(file), "mutant.go"), fmt.Appendf(nil, `package %s

import (
	"os"
	"strconv"
)

var mutant, _ = strconv.Atoi(os.Getenv(%q))
`, f.Name.Name, variable))
}

func (p *Program) put(t *testing.T, path string, text []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x.go")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	p.replace[path] = file
}

// An editor collects insertions into a file.
type editor struct {
	files   *token.FileSet
	places  []string
	inserts []insert // the outer ones first
	ends    []insert
}

type insert struct {
	at   int
	text string
}

func (e *editor) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ForStmt: // a changed condition may never end
		ast.Inspect(n.Body, e.visit)
		return false
	case *ast.BinaryExpr:
		switch n.Op {
		case token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ:
			e.around(n, "((", ") != (mutant == %d))")
			return false
		}
	case *ast.BlockStmt:
		e.statements(n.List)
	case *ast.CaseClause:
		e.statements(n.Body)
	}
	return true
}

func (e *editor) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); !ok || fmt.Sprint(call.Fun) == "panic" {
				continue
			}
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
		case *ast.IncDecStmt:
		default:
			continue
		}
		e.around(s, "if mutant != %d { ", " }")
	}
}

// around puts text around a node, with the number of the change in it.
func (e *editor) around(n ast.Node, before, after string) {
	e.places = append(e.places, e.files.Position(n.Pos()).String())
	number := fmt.Sprint(len(e.places))
	replace := func(text string) string { return strings.ReplaceAll(text, "%d", number) }
	e.inserts = append(e.inserts, insert{e.files.Position(n.Pos()).Offset, replace(before)})
	e.ends = append(e.ends, insert{e.files.Position(n.End()).Offset, replace(after)})
}

func (e *editor) apply(source []byte) []byte {
	// At one offset, nodes end before others begin, and inner nodes before outer ones.
	slices.Reverse(e.ends)
	all := append(e.ends, e.inserts...)
	slices.SortStableFunc(all, func(a, b insert) int { return a.at - b.at })
	var out []byte
	from := 0
	for _, i := range all {
		out = append(append(out, source[from:i.at]...), i.text...)
		from = i.at
	}
	return append(out, source[from:]...)
}

// Missed runs the tests once for every step-th change and returns the places of the changes with which they pass, and
// how many changes it tried. The arguments select the tests.
func (p *Program) Missed(t *testing.T, step int, arguments ...string) (missed []string, tried int) {
	t.Helper()
	run := func(number int, timeout time.Duration) ([]byte, error) {
		cmd := exec.Command(p.binary, append([]string{"-test.failfast", "-test.timeout=" + timeout.String()}, arguments...)...)
		cmd.Dir = p.dir
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", variable, number), "LLM_TEST_LONG=")
		return cmd.CombinedOutput()
	}
	start := time.Now()
	text, err := run(0, 10*time.Minute)
	timeout := time.Minute + 10*time.Since(start) // a change may hang
	require.NoError(t, err, "without a change: %s", text)
	require.NotContains(t, string(text), "no tests to run")
	for i := step / 2; i < len(p.places); i += step {
		tried++
		if _, err := run(i+1, timeout); err == nil {
			missed = append(missed, p.places[i])
		}
	}
	return missed, tried
}
