package guest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// memcheck runs a program under plain Valgrind, as a course does: no rc file,
// no options from the environment, no suppressions.
func memcheck(t *testing.T, env []string, command ...string) result {
	t.Helper()
	need(t, "valgrind")
	valgrind := []string{"valgrind", "--leak-check=full", "--show-leak-kinds=all"}
	return run(t, t.TempDir(), env, append(valgrind, command...)...)
}

// requireClean wants a run that ended well and in which Memcheck found nothing.
func requireClean(t *testing.T, r result) {
	t.Helper()
	require.Zero(t, r.status, r.stderr)
	for _, line := range []string{
		"definitely lost: 0 bytes in 0 blocks",
		"indirectly lost: 0 bytes in 0 blocks",
		"possibly lost: 0 bytes in 0 blocks",
		"ERROR SUMMARY: 0 errors from 0 contexts (suppressed: 0 from 0)",
	} {
		require.Truef(t, strings.Contains(r.stderr, line), "no line %q in\n%s", line, r.stderr)
	}
	for _, trouble := range []string{"Serious error when reading debug info", "unhandled", "Invalid "} {
		require.Falsef(t, strings.Contains(r.stderr, trouble), "%q in\n%s", trouble, r.stderr)
	}
}

func TestPlainValgrindFindsNothing(t *testing.T) {
	for program, ways := range map[string][]way{"scenario": linked[:1], "many": everyWay} {
		t.Run(program, func(t *testing.T) {
			each(t, level.Pick(ways, everyWay), func(t *testing.T, w way) {
				requireClean(t, memcheck(t, nil, w.compile(t, program)))
			})
		})
	}
}

// What the library remembers of a call must not look like the host's pointer.
func TestAnEngineThatTheHostLosesIsDefinitelyLost(t *testing.T) {
	each(t, someWays(), func(t *testing.T, w way) {
		prog := w.compile(t, "leak")
		for _, sequences := range level.Pick([]string{"1"}, []string{"0", "1", "40"}) {
			t.Run("with sequences "+sequences, func(t *testing.T) {
				r := memcheck(t, nil, prog, sequences)
				require.Zero(t, r.status, r.stderr)
				found := regexp.MustCompile(`definitely lost: 40 bytes in 1 blocks`).MatchString(r.stderr)
				require.Truef(t, found, "the engine is not definitely lost:\n%s", r.stderr)
			})
		}
	})
}

func TestTheStrictestValgrindFindsNothingBesideTheSuppressedThreads(t *testing.T) {
	need(t, "valgrind")
	strictest := filepath.Join(root, "valgrind", "run")
	each(t, someWays(), func(t *testing.T, w way) {
		r := succeed(t, t.TempDir(), nil, strictest, w.compile(t, "many"))
		require.Contains(t, r.stderr, "ERROR SUMMARY: 0 errors")
	})
	t.Run("but a lost engine is found", func(t *testing.T) {
		t.Parallel()
		r := run(t, t.TempDir(), nil, strictest, shared.compile(t, "leak"), "1")
		require.Equal(t, 99, r.status, r.stderr)
	})
}

func TestTheSuppressionsNameNoErrorButReachableThreads(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join(root, "valgrind", "llm_memory.supp"))
	require.NoError(t, err)
	require.NotContains(t, string(content), "definite")
	require.NotRegexp(t, `Memcheck:[^L]`, string(content))
}
