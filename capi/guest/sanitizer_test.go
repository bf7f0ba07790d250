package guest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

const sanitizers = "-fsanitize=address,undefined"

func TestAHostWithSanitizersRunsClean(t *testing.T) {
	level.SkipNormal(t)
	each(t, linked, func(t *testing.T, w way) {
		for _, program := range []string{"scenario", "many"} {
			r := succeed(t, t.TempDir(), nil, w.compile(t, program, sanitizers, "-fno-sanitize-recover=all"))
			require.Empty(t, r.stderr)
		}
	})
}

func TestASanitizerStillReportsTheHostsOverflow(t *testing.T) {
	level.SkipNormal(t)
	each(t, linked, func(t *testing.T, w way) {
		r := run(t, t.TempDir(), nil, w.compile(t, "overflow", sanitizers, "-fno-sanitize-recover=all"))
		require.NotZero(t, r.status)
		require.Contains(t, r.stderr, "heap-buffer-overflow")
	})
}

func TestLeakSanitizerFindsEveryAllocationTheHostLoses(t *testing.T) {
	level.SkipNormal(t)
	// 1 engine, 1 object of counts, 24 sequences of 3 objects. After the first 16 the library remembers their order.
	const sequences, all = "24", "in 74 allocation(s)"
	for _, w := range linked {
		r := run(t, t.TempDir(), nil, w.compile(t, "leak", sanitizers, "-fno-sanitize-recover=all"), sequences)
		require.NotZero(t, r.status)
		require.Contains(t, r.stderr, all)
	}
}
