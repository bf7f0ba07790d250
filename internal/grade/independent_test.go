package grade_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// missed are the wrong files of testdata/submissions/independent that get full
// marks: they go wrong only when malloc fails, of which the handout says nothing
// (cmd/llmgrade/README.md, "What costs nothing").
var missed = []string{
	"s1_06_init_leaks_engine_on_oom.c", "s1_37_fork_leaks_on_oom.c", "s1_52_create_first_fit_stale_rollback.c",
	"s1_58_create_no_rollback.c", "s2_01_create_oom_leak.c", "s2_09_fork_rollback_zeroes_refs.c",
	"s2_25_create_fork_oom_leaks_root.c", "s2_61_append_oom_loses_block.c", "s2_62_append_malloc_unchecked.c",
}

// Ensure that submissions whose authors knew only the handout are judged rightly:
// the right ones get full marks, the wrong ones lose points. In make test
// TestTheCSuiteAgrees takes one of them.
func TestSubmissionsWrittenFromTheHandoutAlone(t *testing.T) {
	if !level.Long() {
		t.Skip("only in make test-long: the mutants and the styles show the same")
	}
	g := newGrader(t)
	g.Tries = 0
	for _, folder := range []string{"right", "wrong"} {
		files, err := filepath.Glob(submissions + "independent/" + folder + "/*.c")
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			t.Run(folder+"/"+strings.TrimSuffix(filepath.Base(file), ".c"), func(t *testing.T) {
				t.Parallel()
				r, err := g.File(file)
				require.NoError(t, err)
				full := folder == "right" || slices.Contains(missed, filepath.Base(file))
				require.Equal(t, full, r.Score == 100, "%v points", r.Score)
			})
		}
	}
}
