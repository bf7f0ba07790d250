package guest_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// The example compares its answers with the known answers of its model.
func TestAttentionServesTheExample(t *testing.T) {
	example := filepath.Join("..", "examples", "attention")
	each(t, linked, func(t *testing.T, w way) {
		r := succeed(t, t.TempDir(), nil, w.compileCache(t, example))
		require.Contains(t, r.stdout, "all right")
		if level.Exhaustive() { // else attention_errors makes these calls under Valgrind
			checkCache(t, w, example)
		} else if w == shared {
			succeed(t, t.TempDir(), nil, w.compileCache(t, example, sanitizers, "-fno-sanitize-recover=all"))
		}
	})
}

func TestBlocksInTheCallersMemoryAreCopiedAndConverted(t *testing.T) {
	level.SkipNormal(t)
	succeed(t, t.TempDir(), nil, archive.compileCache(t, "attention_blocks"))
	r := succeed(t, t.TempDir(), nil, shared.compileCache(t, "attention_blocks", sanitizers, "-fno-sanitize-recover=all"))
	require.Empty(t, r.stderr)
	if level.Exhaustive() {
		checkCache(t, archive, "attention_blocks")
	}
}

func TestAttentionRefusesBadInput(t *testing.T) {
	level.SkipNormal(t)
	each(t, linked, func(t *testing.T, w way) {
		succeed(t, t.TempDir(), nil, w.compileCache(t, "attention_errors"))
		if level.Exhaustive() { // else with the others in TestEveryCallOfTheCacheKeepsItsHeader
			checkCache(t, w, "attention_errors")
		}
	})
}
