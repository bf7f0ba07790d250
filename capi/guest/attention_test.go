package guest_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The answers of the example's model are known beforehand, and it checks them.
func TestAttentionServesTheExample(t *testing.T) {
	example := filepath.Join("..", "examples", "attention")
	each(t, linked, func(t *testing.T, w way) {
		r := succeed(t, t.TempDir(), nil, w.compileCache(t, example))
		require.Contains(t, r.stdout, "all right")
		succeed(t, t.TempDir(), nil, w.compileCache(t, example, sanitizers, "-fno-sanitize-recover=all"))
		r = memcheckCache(t, w.compileCache(t, example))
		require.Zero(t, r.status, r.stderr)
	})
}

func TestAttentionRefusesBadInput(t *testing.T) {
	each(t, linked, func(t *testing.T, w way) {
		succeed(t, t.TempDir(), nil, w.compileCache(t, "attention_errors"))
		r := succeed(t, t.TempDir(), nil, w.compileCache(t, "attention_errors", sanitizers, "-fno-sanitize-recover=all"))
		require.Empty(t, r.stderr)
		r = memcheckCache(t, w.compileCache(t, "attention_errors"))
		require.Zero(t, r.status, r.stderr)
	})
}
