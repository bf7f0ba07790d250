package build

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that the code names exactly the rules of gate.txt. The code names a rule as the second argument of the method
// broken, and in the variable words.
func TestEveryRuleThatTheCodeNamesExists(t *testing.T) {
	used := map[string]bool{}
	name := func(set *gotoken.FileSet, rule ast.Expr) {
		if s, found := rule.(*ast.SelectorExpr); found && s.Sel.Name == "Rule" {
			return // that of a Refusal
		}
		text, isString := rule.(*ast.BasicLit)
		require.True(t, isString, set.Position(rule.Pos()))
		unquoted, err := strconv.Unquote(text.Value)
		require.NoError(t, err)
		used[unquoted] = true
	}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		set := gotoken.NewFileSet()
		parsed, err := parser.ParseFile(set, file, nil, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if f, found := n.Fun.(*ast.SelectorExpr); found && f.Sel.Name == "broken" {
					name(set, n.Args[1])
				}
			case *ast.KeyValueExpr: // of words
				if r, found := n.Value.(*ast.CompositeLit); found && r.Type == nil && len(r.Elts) == 3 {
					name(set, r.Elts[1])
				}
			}
			return true
		})
	}
	for name := range rules {
		require.True(t, used[name], "nothing breaks the rule %q", name)
		delete(used, name)
	}
	require.Empty(t, used, "there are no such rules")
}

func TestARuleThatDoesNotExistRefusesNothing(t *testing.T) {
	for _, gate := range []Gate{nil, {"atribute": Ignore}} {
		require.PanicsWithValue(t, "the gate has no rule atribute", func() { (&verdicts{gate: gate}).broken(1, "atribute", "misspelt") })
	}
}
