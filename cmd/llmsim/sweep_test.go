package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/simulation/sim"
	"llmmemory/internal/testkit/level"
)

// shortSweep and longSweep are sweeps of 12 jobs each. The jobs of shortSweep take little time. The jobs of longSweep
// take so long that a test can interrupt the sweep twice.
var (
	shortSweep = strings.Fields("sweep --systems sosp,vllm-v1,orca-max --rates 1:2:1 --seeds 1-2 --duration 5")
	longSweep  = strings.Fields("sweep --systems vllm-v1 --rates 20:22:1 --seeds 1-4 --duration 120 --jobs 1")
)

func withArgs(args []string, extra ...string) []string {
	return append(append([]string{}, args...), extra...)
}

func tables(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range []string{"sweep.csv", "index.html", "latency-block-16.svg", "latency-block-16.png",
		"latency-block-16.csv"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		all[name] = string(text)
	}
	return all
}

func finished(dir string) int {
	text, _ := os.ReadFile(filepath.Join(dir, "runs.jsonl"))
	return bytes.Count(text, []byte("\n"))
}

func TestASweepSaysWhatIsDone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "out")
	status, stdout, stderr := llmsim(t, withArgs(shortSweep, "-o", dir)...)
	require.Zero(t, status, stderr)
	require.Regexp(t, `^system +block +1/s +2/s +up to 0\.5 s/token\norca-max +16 `, stdout)
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	require.Len(t, lines, 14)
	for i, line := range lines[:12] {
		require.Regexp(t, fmt.Sprintf(`^%d/12 [a-z0-9-]+, blocks of 16, [12] requests/s, seed [12]: [0-9.]+ s/token, \d+ of \d+ answered$`, i+1), line)
	}
	require.Equal(t, "12 jobs: "+filepath.Join(dir, "sweep.csv")+", "+filepath.Join(dir, "index.html"), lines[13])
	rows := strings.Split(tables(t, dir)["sweep.csv"], "\n")
	require.Len(t, rows, 14)
	require.True(t, strings.HasPrefix(rows[1], "orca-max,16,1,1,,"), rows[1])
	require.True(t, strings.HasPrefix(rows[12], "vllm-v1,16,2,2,,"), rows[12])

	before := tables(t, dir)
	status, again, stderr := llmsim(t, withArgs(shortSweep, "-o", dir, "--jobs", "1")...)
	require.Zero(t, status, stderr)
	require.Equal(t, stdout, again)
	require.Regexp(t, `^12 of the 12 runs kept in .* were taken, 0 were added\n12 jobs: `, stderr)
	require.Equal(t, before, tables(t, dir))
}

// stop starts longSweep, sends it a signal when it has finished two more jobs, and returns its stderr.
func stop(t *testing.T, dir string, signal os.Signal) (stderr string) {
	t.Helper()
	before := finished(dir)
	cmd := program(withArgs(longSweep, "-o", dir)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return finished(dir) >= before+2 }, 10*time.Minute, time.Millisecond)
	require.NoError(t, cmd.Process.Signal(signal))
	require.Error(t, cmd.Wait())
	require.Less(t, finished(dir), 12)
	require.NoFileExists(t, filepath.Join(dir, "sweep.csv"))
	return said.String()
}

// Ensure that a sweep can be completed after it was first killed during a write and then interrupted.
func TestAKilledSweepGoesOn(t *testing.T) {
	level.SkipNormal(t)
	t.Parallel()
	dir := t.TempDir()
	stop(t, dir, syscall.SIGKILL)
	n := finished(dir)
	file, err := os.OpenFile(filepath.Join(dir, "runs.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteString(`{"key":"0123`) // as if it had been writing
	require.NoError(t, err)
	require.NoError(t, file.Close())
	said := stop(t, dir, os.Interrupt)
	require.NotContains(t, said, fmt.Sprintf("%d/12", n))
	require.Contains(t, said, fmt.Sprintf("%d/12", n+1))
	require.Contains(t, said, "llmsim: interrupted; finished runs are kept in "+dir+": the same command resumes\n")
	status, _, stderr := llmsim(t, withArgs(longSweep, "-o", dir)...)
	require.Zero(t, status, stderr)
	require.Len(t, sweepCSV(t, dir), 13)
}

// Ensure that llmsim sweep with a list of concurrencies prints a table, without the option -o for a folder. With more
// clients there must be more answers per second.
func TestASweepOverConcurrenciesIsATable(t *testing.T) {
	t.Parallel()
	args := strings.Fields("sweep --model llama-3-8b --gpu a100-80gb --input-len 64 --output-len 16 --requests 40")
	status, stdout, stderr := llmsim(t, withArgs(args, "--max-concurrency", "4,1,2")...)
	require.Zero(t, status, stderr)
	rows := strings.Split(stdout, "\n")
	require.Regexp(t, `^system +block +clients +requests/s +tokens/s of answers +first token p50, p95, p99 +per `,
		rows[0])
	last := 0.0
	for i, clients := range []int{1, 2, 4} {
		var rate float64
		_, err := fmt.Sscanf(rows[i+1], fmt.Sprintf("vllm-v1 16 %d %%f", clients), &rate)
		require.NoError(t, err, rows[i+1])
		require.Greater(t, rate, last)
		last = rate
	}
	require.Contains(t, rows[4], "Each client sends its next request when it has an answer, seed 1; in parentheses: ")
}

// Ensure that the table and sweep.csv have the same ranges of results as llmsim run. If the model's setup has no margin
// of error, they must have no ranges.
func TestARowOfConcurrenciesHasItsRange(t *testing.T) {
	t.Parallel()
	args := strings.Fields("--input-len 64 --output-len 16 --requests 20 --max-concurrency 2")
	model := withArgs(args, "--model", "llama-3-8b", "--gpu", "a100-80gb")
	status, stdout, stderr := llmsim(t, withArgs([]string{"run", "--rate", "inf", "--seed", "1", "--json"}, model...)...)
	require.Zero(t, status, stderr)
	var run struct {
		Result *sim.Result
		Range  []*sim.Result
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &run))
	require.Len(t, run.Range, 2)
	fast, slow := run.Range[0], run.Range[1]

	dir := filepath.Join(t.TempDir(), "out")
	status, stdout, stderr = llmsim(t, withArgs([]string{"sweep", "-o", dir}, model...)...)
	require.Zero(t, status, stderr)
	rate := func(n int, r *sim.Result) float64 { return float64(n) / r.Seconds }
	for _, cell := range []string{
		fmt.Sprintf("%.3g (%.3g to %.3g)", rate(run.Result.Answered, run.Result), rate(slow.Answered, slow),
			rate(fast.Answered, fast)),
		fmt.Sprintf("%.0f (%.0f to %.0f)", rate(run.Result.Generated, run.Result), rate(slow.Generated, slow),
			rate(fast.Generated, fast)),
		fmt.Sprintf("%.3g (%.3g to %.3g), %.3g", 1000*run.Result.TTFT.P50, 1000*fast.TTFT.P50, 1000*slow.TTFT.P50,
			1000*run.Result.TTFT.P95),
		fmt.Sprintf("%.3g (%.3g to %.3g), %.3g", 1000*run.Result.TPOT.P50, 1000*fast.TPOT.P50, 1000*slow.TPOT.P50,
			1000*run.Result.TPOT.P95),
	} {
		require.Contains(t, stdout, "  "+cell)
	}
	rows := sweepCSV(t, dir)
	head, row := rows[0], rows[1]
	require.Equal(t, []string{"max_concurrency", "requests_per_second_least", "requests_per_second_most",
		"tokens_per_second_least", "tokens_per_second_most", "first_p50_least", "first_p50_most", "between_p50_least",
		"between_p50_most"}, head[len(head)-9:])
	for i, want := range []float64{
		2, rate(slow.Answered, slow), rate(fast.Answered, fast), rate(slow.Generated, slow), rate(fast.Generated, fast),
		fast.TTFT.P50, slow.TTFT.P50, fast.TPOT.P50, slow.TPOT.P50,
	} {
		got, err := strconv.ParseFloat(row[len(row)-9+i], 64)
		require.NoError(t, err)
		require.InEpsilon(t, want, got, 1e-9, head[len(head)-9+i])
	}

	dir = filepath.Join(t.TempDir(), "out")
	status, stdout, stderr = llmsim(t, withArgs([]string{"sweep", "--setup", "llama-3-8b", "-o", dir}, args...)...)
	require.Zero(t, status, stderr)
	require.NotContains(t, stdout, "(")
	head = sweepCSV(t, dir)[0]
	require.Equal(t, "max_concurrency", head[len(head)-1])
}

func sweepCSV(t *testing.T, dir string) [][]string {
	t.Helper()
	file, err := os.Open(filepath.Join(dir, "sweep.csv"))
	require.NoError(t, err)
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	require.NoError(t, err)
	return rows
}

// Ensure that each rate of a trace is run only once: its requests are the same under all seeds.
func TestATraceHasOneSeed(t *testing.T) {
	rows := func(extra ...string) int {
		dir := filepath.Join(t.TempDir(), "out")
		args := append([]string{"sweep", "--trace", "testdata/bursts.csv", "--setup", "llama-3-8b", "--systems", "sosp",
			"--rates", "1,2", "-o", dir}, extra...)
		status, _, stderr := llmsim(t, args...)
		require.Zero(t, status, stderr)
		text, err := os.ReadFile(filepath.Join(dir, "sweep.csv"))
		require.NoError(t, err)
		return strings.Count(string(text), "\n") - 1
	}
	require.Equal(t, 2, rows())
	require.Equal(t, 4, rows("--seeds", "1-2"))
}
