package compare

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/course/trace"
)

// Ensure that each entry of mistakes can be reported: its function exists, no earlier entry hides it, and
// Difference.says replaces all {names} in its words.
func TestEveryMistakeCanBeFoundAndSaid(t *testing.T) {
	name := regexp.MustCompile(`\{\w+\}`)
	for i, m := range mistakes {
		if m.call != "" {
			require.NotZero(t, trace.TaskOf(m.call), "%+v", m)
		}
		require.NotEmpty(t, m.sentence+m.words, "%+v", m)
		for _, before := range mistakes[:i] {
			require.False(t, before.hides(m), "%+v is never found after %+v", m, before)
		}
		said := (&Difference{Op: trace.Op{Kind: trace.Append}, Field: "a field", Expected: "this", Actual: "that"}).says(m.words)
		require.Empty(t, name.FindAllString(said, -1), "words of %+v that say leaves as they are", m)
	}
	last := mistakes[len(mistakes)-1]
	require.NotEmpty(t, last.words)
	require.Equal(t, mistake{words: last.words}, last, "the last mistake matches every difference")
}

func (m mistake) hides(later mistake) bool {
	return (m.call == "" || m.call == later.call) && (m.seen == "" || m.seen == later.seen) &&
		strings.Contains(later.field, m.field) && strings.Contains(later.expected, m.expected) && strings.Contains(later.actual, m.actual) &&
		(&Difference{Facts: later.facts}).Has(m.facts...) && (m.sentence != "" || later.sentence == "") && (m.words != "" || later.words == "")
}
