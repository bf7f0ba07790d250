package supervise

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/course/trace"
)

// A trace that is encoded again has the same steps, and another has its own.
func TestLongTracesAreEncodedOnce(t *testing.T) {
	parse := func(first, last int) []trace.Op {
		var text strings.Builder
		fmt.Fprintf(&text, "init e0 64000\ngiven create e0 1 1\ncreate e0 3 %d\n", first)
		for range long {
			text.WriteString("append e0 1 7\n")
		}
		fmt.Fprintf(&text, "append e0 1 %d\n", last)
		ops, err := trace.Parse(text.String())
		require.NoError(t, err)
		return ops
	}
	seen := map[string]bool{}
	for _, c := range []struct {
		first, last int
		defined     bool
	}{{1, 8, false}, {1, 9, false}, {2147483647, 8, false}, {2147483647, 8, true}} {
		alone, err := encodeTrace(parse(c.first, c.last), c.defined)
		require.NoError(t, err)
		require.False(t, seen[string(alone)])
		seen[string(alone)] = true
		for range 2 {
			steps, err := encoded.of(parse(c.first, c.last), c.defined)
			require.NoError(t, err)
			require.Equal(t, alone, steps)
		}
	}
	require.Len(t, encoded.kept, len(seen))
}
