package kernels_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/cudatest"
	"llmmemory/internal/testkit/level"
)

// rivals are times of another library as compare.py writes them.
const rivals = "# a note of compare.py\n" + "a note of a library\n" +
	"product outputs=28 columns=256 rows=1\tcuBLAS\tnan\n" +
	"product outputs=28 columns=256 rows=1\tcuBLAS\t1e6\n" +
	"product outputs=28 columns=256 rows=33\tcuBLAS\t1e-9\n" +
	"prefill group=4 heads=1 seqs=1 tokens=32\tcuDNN\t1e-9\n" +
	"prefill group=4 heads=1 seqs=1 tokens=32\tflash\t1e6\n"

// Ensure that the folder that .ci/gpu builds runs without other files, and measures and checks every
// case. The test uses the emulator.
func TestTheScriptForAGPUMeasuresAndChecks(t *testing.T) {
	level.SkipQuick(t)
	driver, folder := cudatest.Library(t), filepath.Join(t.TempDir(), "carried")
	out, err := exec.Command("../../../../.ci/gpu", "build", folder).CombinedOutput()
	require.NoError(t, err, "%s", out)
	requireComparisonOfCases(t, folder)
	theirs := filepath.Join(t.TempDir(), "theirs")
	require.NoError(t, os.WriteFile(theirs, []byte(rivals), 0o600))
	run := exec.Command(filepath.Join(folder, "run"), "-small", "-driver", driver, "-theirs", theirs)
	run.Dir = t.TempDir()
	out, err = run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, row := range []string{
		`Emulated GPU 0, compute capability 9\.0, 4 multiprocessors, driver for CUDA 13\.0`, `copy inside the GPU: \d+ GB/s.*`, `# a note of compare.py`, `# a note of a library`,
		`rms_norm rows=3 n=256 .* 0\.\d+ equal +-`, `layer_norm .* equal +-`, `add .* equal +-`, `(silu|gelu_tanh|swigluoai)_and_mul .* equal +-`, `gelu_new .* equal +-`, `relu .* 0\.000 equal +-`,
		`rotary_embedding .* 0\.\d+ - +-`, `argmax .* 0\.000 - +-`, `embedding .* 0\.000 - +-`, `reshape_and_cache .* 0\.000 - +-`, `copy_blocks .* 0\.000 - +-`,
		`decode_e4m3 .* equal +-`, `decode_e5m2 .* equal +-`, `prefill_e4m3 .* equal +-`, `reshape_and_cache_e4m3 .* 0\.000 - +-`,
		`swap_blocks_(out|in) .* 0\.000 - +45 GB/s: NO`, `decode .* equal +0\.95 of copy: NO`, `decode .* equal +0\.72 of copy: NO`,
		`prefill group=4 heads=1 seqs=1 tokens=32 .* cuDNN 0\.00 flash \d+\.\d\d .* equal +0\.88 of flash: yes`,
		`product outputs=28 columns=256 rows=1 .* cuBLAS \d+\.\d\d .* equal +1\.00 of cuBLAS: yes`,
		`product outputs=28 columns=256 rows=33 .* cuBLAS 0\.00 .* equal +0\.70 of cuBLAS: NO`,
		`product outputs=28 columns=256 rows=66 .* - .* equal +0\.60 of cuBLAS: not compared`,
		`product_(q8_0|q4_k) .* equal +0\.70 of copy: NO`, `2 of 64 required ratios hold, 40 could not be compared`,
		`product_q6_k_bf16 +32 +0 +\d+ +\d+`, `0 kernels have local memory, for registers that did not fit`, `all right`,
	} {
		require.Regexp(t, `(?m)^`+row+`$`, string(out))
	}
	require.Len(t, regexp.MustCompile(`(?m) (equal|-) +(-|\d.*: (yes|NO|not compared))$`).FindAllString(string(out), -1), len(cases(t, folder, "-small")), "%s", out)
	out, err = exec.Command(filepath.Join(folder, "gpu"), "-small", "-driver", driver, "-within", "1ns").CombinedOutput()
	require.Error(t, err)
	require.Regexp(t, `(?m)^product_q4_k outputs=130 columns=256 rows=1 +not measured: the time is over$`, string(out))
	run = exec.Command(filepath.Join(folder, "run"), "-small", "-driver", "libnothere.so.1")
	out, err = run.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "gpu: no NVIDIA driver: cannot load libnothere.so.1: install NVIDIA's driver")
}

// cases returns the cases, each as the kernel and its sizes.
func cases(t *testing.T, folder string, options ...string) (all [][]string) {
	t.Helper()
	out, err := exec.Command(filepath.Join(folder, "gpu"), append(options, "-cases")...).Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		all = append(all, strings.Fields(line))
	}
	return all
}

// requireComparisonOfCases requires that compare.py has a function for each kernel, with parameters for its sizes, and that the small cases
// are as many of each kernel as the others.
func requireComparisonOfCases(t *testing.T, folder string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "compare.py"))
	require.NoError(t, err)
	count, small := map[string]int{}, map[string]int{}
	for _, c := range cases(t, folder) {
		count[c[0]]++
		if strings.HasPrefix(c[0], "product_") || strings.HasSuffix(c[0], "_e4m3") || strings.HasSuffix(c[0], "_e5m2") { // PyTorch does not have these formats
			continue
		}
		var sizes []string
		for _, size := range c[1:] {
			name, _, _ := strings.Cut(size, "=")
			sizes = append(sizes, name)
		}
		require.Contains(t, string(text), "\ndef "+c[0]+"("+strings.Join(sizes, ", ")+"):\n")
	}
	for _, c := range cases(t, folder, "-small") {
		small[c[0]]++
	}
	require.Equal(t, count, small)
	for kernel, n := range map[string]int{"decode": 9, "decode_e4m3": 2, "decode_e5m2": 1, "prefill": 3, "prefill_e4m3": 2, "product": 40, "product_q8_0": 5, "product_q4_k": 5} {
		require.Equal(t, n, count[kernel], kernel)
	}
	if _, err := exec.LookPath("python3"); err != nil {
		return
	}
	out, err := exec.Command("python3", "-c", "import ast, sys; ast.parse(open(sys.argv[1]).read())", filepath.Join(folder, "compare.py")).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
