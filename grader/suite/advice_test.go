package suite_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

var advised = map[string]string{
	"U1": "advice_init_survives_malloc_failure",
	"U2": "advice_create_survives_malloc_failure",
	"U3": "advice_fork_survives_malloc_failure",
	"U4": "advice_init_survives_malloc_failure",
}

func TestAdviceIsNeverAFailure(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, m := range mutants(t) {
		if name, given := advised[m.ID]; given {
			requirePasses(t, m)
			r := execute(t, buildMutant(t, m, true), "--advice", "--only", "advice_")
			require.Zero(t, r.status, "%s", r.stdout)
			require.Equal(t, "0 passed, 0 failed", r.last())
			require.Contains(t, r.stdout, "ADVICE "+name+"\n")
			seen++
		}
	}
	require.Len(t, advised, seen)
}
