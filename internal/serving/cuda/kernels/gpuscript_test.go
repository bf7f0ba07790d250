package kernels_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
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
	"prefill group=4 heads=1 seqs=1 tokens=32\tflash\t1e6\n" +
	"3 requests of 4 to 40 tokens, 4 new\ttransformers\t1e6\n" +
	"1 request of 22 tokens, 4 new\ttransformers\t1e-9\n"

// Ensure that the programs that .ci/gpu builds into a folder need no files outside this folder except the driver. The
// program run of the folder must measure and check every case of the kernels and of the server. The test uses the
// emulator.
func TestTheScriptForAGPUMeasuresAndChecks(t *testing.T) {
	level.SkipNormal(t)
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
		`fused_qk_norm_rope_and_cache .* 0\.\d+ - +-`, `sample .* 0\.000 - +-`, `embedding .* 0\.000 - +-`, `reshape_and_cache .* 0\.000 - +-`, `copy_blocks .* 0\.000 - +-`,
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
	table, _, _ := strings.Cut(string(out), "registers")
	require.Len(t, regexp.MustCompile(`(?m) (equal|-) +(-|\d.*: (yes|NO|not compared))$`).FindAllString(table, -1), len(cases(t, folder, "-small")), "%s", out)
	requireServerTable(t, string(out))
	out, err = exec.Command(filepath.Join(folder, "gpu"), "-small", "-driver", driver, "-within", "1ns").CombinedOutput()
	require.Error(t, err)
	require.Regexp(t, `(?m)^product_q4_k outputs=130 columns=256 rows=1 +not measured: the time is over$`, string(out))
	out, err = exec.Command(filepath.Join(folder, "server"), "-small", "-driver", driver, "-within", "1ns").CombinedOutput()
	require.Error(t, err)
	for _, part := range []string{"http", "paper", "predict"} {
		require.Regexp(t, `(?m)^`+part+` +not measured: the time is over$`, string(out))
	}
	out, err = exec.Command(filepath.Join(folder, "run"), "tests", "-small", "-driver", driver).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "PASS\n", string(out))
	for _, part := range []string{"kernels", "server", "tests"} {
		out, err = exec.Command(filepath.Join(folder, "run"), part, "-small", "-driver", "libnothere.so.1").CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), "no NVIDIA driver: cannot load libnothere.so.1: install NVIDIA's driver")
	}
}

// Ensure that .ci/gpu only prints its usage if a user asks for help. The same must be true of the copy of this script
// that ".ci/gpu build FOLDER" writes to FOLDER/run.
func TestTheScriptForAGPUPrintsItsUsage(t *testing.T) {
	script, err := os.ReadFile("../../../../.ci/gpu")
	require.NoError(t, err)
	carried := filepath.Join(t.TempDir(), "run")
	require.NoError(t, os.WriteFile(carried, script, 0o700))
	for _, args := range [][]string{{"../../../../.ci/gpu", "--help"}, {carried, "--help"}, {carried, "server", "-h"}} {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Regexp(t, `^Measures the GPU kernels and llmserve .*\n(.*\n)*  FOLDER/run \[PART\] \[OPTIONS\]  .* kernels or server`, string(out))
		require.NotContains(t, string(out), "compare.py")
	}
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

// requireComparisonOfCases requires a function of compare.py for each kernel that PyTorch can compute. The function's
// parameters must be the sizes of the kernel's cases. Each kernel must have as many small cases as other cases.
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
	for _, script := range []string{"compare.py", "compare-server.py"} {
		out, err := exec.Command("python3", "-c", "import ast, sys; ast.parse(open(sys.argv[1]).read())", filepath.Join(folder, script)).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// requireServerTable requires that the output has every row of the server's table. It also compares systems with each
// other. Of the paper's systems, one that reserves less memory must need fewer steps. llmserve must need fewer steps
// than Orca (Max). A prompt with more answers must save more memory by sharing blocks. These results do not depend on
// time, and the paper reports the same order. The program itself checks that all systems generate the same tokens.
func requireServerTable(t *testing.T, out string) {
	t.Helper()
	const verdict = `: (yes|NO)`
	for _, row := range []string{
		`copy inside the GPU: .*; to the GPU: \d+\.\d GB/s`, `decode step seqs=1 tokens=20 .* ms, .* 0\.72 of copy` + verdict, `decode step seqs=2 .* 0\.72 of copy` + verdict,
		`decode step seqs=3 .* 0\.65 of copy` + verdict, `decode step seqs=5 .* 0\.50 of copy` + verdict,
		`GPU idle between steps=[1-9]\d* seqs=3 .* % at most, .* at most 3 %` + verdict, `start with .* weights .* s; to send them .* at most 1\.5 times .*` + verdict,
		`  llama: llama, 2 layers, weights of .*Emulated GPU 0.*`,
		`3 requests of 4 to 40 tokens, 4 new .* tokens/s; transformers 0 .* 2\.00 of transformers: yes`, `5 requests .* tokens/s +- +2\.00 of transformers: not compared`,
		`1 request of 22 tokens, 4 new .* 0\.00 +3\.00 of transformers: NO`, `OPT-13B's shape, .* 20 requests of ShareGPT's lengths at once:`,
		`blocks \(llmserve\) against Orca \(Oracle\) +[\d.]+ and [\d.]+ requests/s .* 1\.50 \(the paper: 1\.7 to 2\.7\)` + verdict, `blocks \(llmserve\) against Orca \(Max\) +[\d.]+ and [\d.]+ requests/s .* 2\.50 \(the paper: 2\.7 to 8\)` + verdict,
		`simulated: 100 requests/s of 15 \+ 5 tokens +throughput \d+\.\d tokens/s; measured .* % off .*`, ` +first token \d+\.\d ms; measured .*`, ` +per token \d+\.\d ms; measured .*`,
		`\d+ of 11 required ratios hold, 1 could not be compared`,
	} {
		require.Regexp(t, `(?m)^`+row+`$`, out)
	}
	number := func(pattern string) float64 {
		found := regexp.MustCompile(`(?m)^` + pattern + `$`).FindStringSubmatch(out)
		require.NotNil(t, found, "%s\n%s", pattern, out)
		n, err := strconv.ParseFloat(found[1], 64)
		require.NoError(t, err)
		return n
	}
	steps := func(system string) float64 { return number(`  ` + regexp.QuoteMeta(system) + ` .* (\d+) steps`) }
	oracle, pow2, maximum := steps("Orca (Oracle)"), steps("Orca (Pow2)"), steps("Orca (Max)")
	require.Less(t, steps("blocks (the paper's scheduler)"), oracle)
	require.Less(t, steps("blocks (llmserve)"), maximum)
	require.Less(t, oracle, pow2)
	require.Less(t, pow2, maximum)
	before := 0.0
	for _, answers := range []string{"2", "4", "6"} {
		saved := number(`answers=` + answers + `: blocks against .*\n +(\d+\.\d) % of the blocks are saved by sharing; .*`)
		require.Greater(t, saved, before)
		before = saved
	}
}
