package kernels_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/cudatest"
	"llmmemory/internal/testkit/level"
)

// Ensure that the folder that .ci/gpu builds runs without other files, and measures and checks every
// case. The test uses the emulator.
func TestTheScriptForAGPUMeasuresAndChecks(t *testing.T) {
	level.SkipQuick(t)
	driver, folder := cudatest.Library(t), filepath.Join(t.TempDir(), "carried")
	out, err := exec.Command("../../../../.ci/gpu", "build", folder).CombinedOutput()
	require.NoError(t, err, "%s", out)
	run := exec.Command(filepath.Join(folder, "run"), "-small", "-driver", driver)
	run.Dir = t.TempDir()
	out, err = run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, row := range []string{
		`(?m)^Emulated GPU 0, compute capability 9\.0, 4 multiprocessors, driver for CUDA 13\.0$`, `(?m)^copy inside the GPU: \d+ GB/s`,
		`(?m)^rms_norm rows=3 n=256 .* 0\.\d+ equal$`, `(?m)^silu_and_mul .* equal$`, `(?m)^rotary_embedding .* 0\.\d+ -$`, `(?m)^argmax .* 0\.000 -$`, `(?m)^reshape_and_cache .* 0\.000 -$`, `(?m)^swap_blocks_out .* 0\.000 -$`,
		`(?m)^swap_blocks_in .* 0\.000 -$`, `(?m)^decode .* equal$`, `(?m)^prefill .* equal$`, `(?m)^all right$`,
	} {
		require.Regexp(t, row, string(out))
	}
	run = exec.Command(filepath.Join(folder, "run"), "-small", "-driver", "libnothere.so.1")
	out, err = run.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "gpu: no NVIDIA driver: cannot load libnothere.so.1: install NVIDIA's driver")
}
