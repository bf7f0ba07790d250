package guest_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/cudatest"
	"llmmemory/internal/testkit/level"
)

var cudaExample = filepath.Join("..", "examples", "cuda")

// The example compares its answers with the known answers of its model.
func TestAGPUServesTheExample(t *testing.T) {
	level.SkipNormal(t)
	driver := cudatest.Library(t)
	each(t, linked, func(t *testing.T, w way) {
		example := w.compileCache(t, cudaExample)
		for _, arguments := range [][]string{{driver}, {driver, "e4m3"}, {driver, "e5m2"}} {
			r := succeed(t, t.TempDir(), nil, append([]string{example}, arguments...)...)
			require.Contains(t, r.stdout, "all right")
			require.Contains(t, r.stdout, "1 preemptions")
		}
		if level.Exhaustive() && w == shared { // the kernels, too
			succeed(t, t.TempDir(), nil, w.compileCache(t, cudaExample, sanitizers, "-fno-sanitize-recover=all"), cudatest.Sanitized(t))
		}
	})
}

func TestAGPURefusesBadInput(t *testing.T) {
	level.SkipNormal(t)
	driver := cudatest.Library(t)
	each(t, linked, func(t *testing.T, w way) {
		succeed(t, t.TempDir(), nil, w.compileCache(t, "cuda_errors"), driver)
	})
}
