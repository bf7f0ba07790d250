package handout

import (
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"testing"

	"github.com/stretchr/testify/require"
)

// clauses returns the constants of clauses.go by name. It uses the type checker, so that a test of all clauses cannot
// miss one.
func clauses(t *testing.T) map[string]string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "clauses.go", nil, 0)
	require.NoError(t, err)
	checked, err := (&types.Config{Importer: importer.Default()}).Check("handout", files, []*ast.File{file}, nil)
	require.NoError(t, err)
	found := map[string]string{}
	for _, name := range checked.Scope().Names() {
		if c, ok := checked.Scope().Lookup(name).(*types.Const); ok && name != "Elided" {
			found[name] = constant.StringVal(c.Val())
		}
	}
	require.Greater(t, len(found), 40)
	return found
}

func TestEveryClauseStandsInTheHandout(t *testing.T) {
	for name, clause := range clauses(t) {
		require.True(t, Quotes(clause), "%s: %q", name, clause)
	}
}

func TestNoClauseHasTwoNames(t *testing.T) {
	names := map[string]string{}
	for name, clause := range clauses(t) {
		require.Empty(t, names[clause], "%s has the same words", name)
		names[clause] = name
	}
}

func TestEveryQuoteIsInTheHandout(t *testing.T) {
	for _, c := range []struct {
		name     string
		sentence string
		want     bool
	}{
		{"a sentence", FreeCounts, true},
		{"white space differs", "Store\n\tpool_addr .", true},
		{"a word differs", "Store pool_base.", false},
		{"elided, in order", AppendFinds + Elided + AppendFull, true},
		{"elided, out of order", AppendFull + Elided + AppendFinds + Elided + AppendFull, false},
		{"nothing", "", false},
		{"nothing after the ellipsis", AppendFinds + Elided, false},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, Quotes(c.sentence)) })
	}
}
