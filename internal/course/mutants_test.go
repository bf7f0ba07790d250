package course_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
	"llmmemory/internal/testkit/mutants"
)

// Ensure that the exhaustive tests alone notice at least three quarters of a sample of changes of the engine;
// MUTATION.md is about all changes.
func TestTheExhaustiveTestsNoticeChanges(t *testing.T) {
	if !level.Long() {
		t.Skip("runs the exhaustive tests about 40 times; set LLM_TEST_LONG=1")
	}
	missed, tried := mutants.Build(t, "append.go", "batch.go", "deepen.go", "engine.go", "sequence.go", "../block/writable.go", "../block/firstfit.go").
		Missed(t, 5, "-test.run=^Test(EveryShortUse|EveryCallAtABoundary|CopyOnWriteEverywhere).*Handouts$")
	require.LessOrEqual(t, len(missed), tried/4, "of %d changes, the tests do not notice those at %q", tried, missed)
}
