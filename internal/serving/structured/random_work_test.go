package structured

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/serving/meter"
)

// drawExpression returns a regular expression, or an expression of a GBNF grammar, of the given depth: nested, repeated,
// nullable, counted, ambiguous and, in a grammar, recursive.
func drawExpression(t *rapid.T, grammar bool, n, depth int) string {
	if depth == 0 {
		leaves := []string{"a", "b", "[ab]", "[^a]", ".", "é"}
		if grammar {
			leaves = []string{`"a"`, `"ab"`, "[ab]", "[^a]", `""`, "root", "other", `"é"`}
		}
		return rapid.SampledFrom(leaves).Draw(t, "leaf")
	}
	inner := func() string { return drawExpression(t, grammar, n, depth-1) }
	group := "(" + inner() + ")"
	switch rapid.IntRange(0, 6).Draw(t, "kind") {
	case 0:
		return group + rapid.SampledFrom([]string{"?", "*", "+"}).Draw(t, "quantifier")
	case 1:
		return fmt.Sprintf("%s{0,%d}", group, n)
	case 2:
		return fmt.Sprintf("%s{%d}", group, n)
	case 3:
		return strings.Repeat(group+" ", n)
	case 4:
		return group + strings.Repeat(" | "+group, n)
	case 5:
		return strings.Repeat("(", min(n, 90)) + inner() + strings.Repeat(")?", min(n, 90))
	}
	return group + " " + inner()
}

// drawForm returns a form of the size n. The same draws with another n give the same form with other counts.
func drawForm(t *rapid.T, n int) Form {
	depth := rapid.IntRange(1, 3).Draw(t, "depth")
	switch rapid.IntRange(0, 3).Draw(t, "form") {
	case 0:
		return Form{Regex: drawExpression(t, false, n, depth)}
	case 1, 2:
		return grammarOf("root ::= " + drawExpression(t, true, n, depth) + ` | "x"` + "\nother ::= " + drawExpression(t, true, n, 1) + ` | "y"`)
	}
	tags := &Tags{Triggers: []string{"<"}}
	for i := range n {
		tags.Tags = append(tags.Tags, Tag{Begin: fmt.Sprintf("<%d>", i%10), Content: Form{Regex: drawExpression(t, false, 2, 1)}, End: []string{"<"}})
	}
	return Form{Repeat: &Repeat{Form: Form{Tags: tags}, Max: n}}
}

// Ensure that what a random small form allocates is bounded by the work that is counted for it and by its bytes,
// that its errors name a limit, and that what its answer is charged does not depend on caches.
func TestTheWorkForRandomFormsIsCounted(t *testing.T) {
	v := smallVocabulary(t, []byte("aaaabbbbabab<1><2>"))
	rapid.Check(t, func(r *rapid.T) {
		form := drawForm(r, rapid.SampledFrom([]int{3, 6, 12}).Draw(r, "n"))
		compiling, answering := costOf(t, v, form)
		about := fmt.Sprintf("%.300s: %+v, %+v", must(form), compiling, answering)
		require.LessOrEqual(r, compiling.units, CompileWork, about)
		require.LessOrEqual(r, compiling.allocated, 300_000+200*compiling.units+150*compiling.bytes, about)
		require.LessOrEqual(r, answering.allocated, 300_000+400*answering.units, about)
		for _, err := range []error{compiling.err, answering.err} {
			if limit := (*meter.LimitError)(nil); err != nil && !errors.As(err, &limit) {
				require.Regexp(r, "more than|deeper than|is not supported|has no answer|no text", err.Error(), about)
			}
		}
		if compiling.err == nil && compiling.units < 20_000 && answering.units < 100_000 {
			checkSpending(t, v, form, nil)
		}
	})
}
