package sweep

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/jobs"
	"llmmemory/internal/sim"
	"llmmemory/internal/testkit/level"
)

var all = jobs.Shard{Index: 1, Of: 1}

// run runs a shard in a folder, and returns what it ran.
func run(t *testing.T, dir string, s *Sweep, shard jobs.Shard, atOnce int) []Job {
	t.Helper()
	f, err := OpenFolder(dir, s, shard)
	require.NoError(t, err)
	var ran []Job
	require.NoError(t, f.Run(context.Background(), atOnce, func(o Outcome) { ran = append(ran, o.Job) }))
	require.NoError(t, f.Close())
	return ran
}

// table returns the folder's sweep.csv.
func table(t *testing.T, dir string, s *Sweep) string {
	t.Helper()
	require.NoError(t, state(t, dir, s).Write(dir, DefaultSLO))
	text, err := os.ReadFile(filepath.Join(dir, "sweep.csv"))
	require.NoError(t, err)
	return string(text)
}

// state reads the folder as another shard does.
func state(t *testing.T, dir string, s *Sweep) *State {
	t.Helper()
	f, err := OpenFolder(dir, s, jobs.Shard{Index: 9, Of: 9})
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return f.State
}

func results(dir string) string { return filepath.Join(dir, "results-1-of-1.jsonl") }

// Ensure that a process which is killed while it writes loses one job, wherever
// in the line that was.
func TestALineIsCutOffAndRunAgain(t *testing.T) {
	g := grid()
	g.Systems, g.Rates, g.Seeds = g.Systems[:1], g.Rates[:1], []uint64{1, 2}
	s := open(t, g)
	dir := t.TempDir()
	run(t, dir, s, all, 1)
	want := table(t, dir, s)
	whole, err := os.ReadFile(results(dir))
	require.NoError(t, err)
	lines := strings.SplitAfter(string(whole), "\n")
	require.Len(t, lines, 3)
	for cut := len(lines[0]); cut < len(whole); cut++ {
		if cut%level.Pick(8, 1) != 0 && cut > len(lines[0])+1 && cut < len(whole)-2 {
			continue
		}
		require.NoError(t, os.WriteFile(results(dir), whole[:cut], 0o644))
		require.Len(t, state(t, dir, s).Missing(), 1, cut) // the line is not there yet
		require.Len(t, run(t, dir, s, all, 1), 1, cut)
		again, err := os.ReadFile(results(dir))
		require.NoError(t, err)
		require.Equal(t, string(whole), string(again), cut)
	}
	zeroes := append(slices.Clone(whole[:len(lines[0])+20]), make([]byte, 4096)...) // as after a power cut
	require.NoError(t, os.WriteFile(results(dir), zeroes, 0o644))
	require.Len(t, run(t, dir, s, all, 1), 1)
	require.Equal(t, want, table(t, dir, s))
}

func TestWhatIsNoResultIsToldAndKept(t *testing.T) {
	s := open(t, grid())
	dir := t.TempDir()
	run(t, dir, s, all, 2)
	whole, err := os.ReadFile(results(dir))
	require.NoError(t, err)
	lines := strings.SplitAfter(string(whole), "\n")
	for name, bad := range map[string]string{
		"no JSON":     lines[1][:100] + "\n",
		"empty":       "\n",
		"another job": strings.Replace(lines[1], `"key":"`, `"key":"0`, 1),
		"mislabelled": strings.Replace(lines[1], `"seed":`, `"seed":9`, 1),
		"no outcome":  lines[1][:strings.Index(lines[1], `,"result"`)] + "}\n",
	} {
		text := lines[0] + bad + lines[2]
		require.NoError(t, os.WriteFile(results(dir), []byte(text), 0o644))
		_, err := OpenFolder(dir, s, all)
		require.ErrorIs(t, err, ErrResults, name)
		require.ErrorContains(t, err, "line 2 of "+results(dir), name)
		kept, err := os.ReadFile(results(dir))
		require.NoError(t, err)
		require.Equal(t, text, string(kept), name)
	}
}

// Ensure that a job that fails stops no other, is in the table with its error,
// and is tried again.
func TestWhatFailedIsRunAgain(t *testing.T) {
	files := t.TempDir()
	const text = `{"model": "opt-13b", "gpu": "a100-40gb", "workers": 1}`
	g := grid()
	g.Base.Setup = write(t, files, "setup.json", text)
	s := open(t, g)
	dir := t.TempDir()
	require.NoError(t, os.Remove(g.Base.Setup))
	require.Len(t, run(t, dir, s, all, 2), 8)
	st := state(t, dir, s)
	require.Len(t, st.Failed(all), 8)
	half := len(st.Failed(jobs.Shard{Index: 1, Of: 2})) + len(st.Failed(jobs.Shard{Index: 2, Of: 2}))
	require.Equal(t, 8, half)
	rows, err := csv.NewReader(strings.NewReader(table(t, dir, s))).ReadAll()
	require.NoError(t, err)
	require.Contains(t, rows[1][4], "no such file")
	require.Equal(t, "0", strings.Join(rows[1][5:], ""), "the concurrency is known")

	write(t, files, "setup.json", text)
	require.Len(t, run(t, dir, s, all, 2), 8)
	fresh := t.TempDir()
	run(t, fresh, s, all, 2)
	require.Equal(t, table(t, fresh, s), table(t, dir, s))

	write(t, files, "setup.json", strings.Replace(text, "40gb", "80gb", 1)) // not what the keys are of
	f, err := OpenFolder(t.TempDir(), s, all)
	require.NoError(t, err)
	require.ErrorIs(t, f.Run(context.Background(), 1, func(Outcome) {}), ErrChanged)
	require.NoError(t, f.Close())
}

func TestATraceThatChangesEndsTheSweep(t *testing.T) {
	files := t.TempDir()
	g := grid()
	g.Base.Duration = 0
	g.Base.Trace = write(t, files, "a.csv", "arrival,prompt,output\n0,10,2\n1,10,2\n")
	s := open(t, g)
	dir := t.TempDir()
	f, err := OpenFolder(dir, s, all)
	require.NoError(t, err)
	done := 0
	err = f.Run(context.Background(), 1, func(Outcome) {
		if done++; done == 3 {
			require.NoError(t, os.Remove(g.Base.Trace))
			write(t, files, "a.csv", "arrival,prompt,output\n0,10,2\n1,10,3\n")
			require.NoError(t, os.Chtimes(g.Base.Trace, s.changed.Add(1e9), s.changed.Add(1e9)))
		}
	})
	require.ErrorIs(t, err, ErrChanged)
	require.NoError(t, f.Close())
	require.Equal(t, 3, done)
	_, err = OpenFolder(dir, open(t, g), all)
	require.ErrorIs(t, err, ErrOther)
	require.ErrorContains(t, err, "its trace has other requests")
}

func TestAFolderIsOfOneSweepAndOneProcess(t *testing.T) {
	s := open(t, grid())
	dir := filepath.Join(t.TempDir(), "new", "folder")
	f, err := OpenFolder(dir, s, all)
	require.NoError(t, err)
	_, err = OpenFolder(dir, s, all)
	require.ErrorIs(t, err, jobs.ErrBusy)
	_, err = OpenFolder(dir, s, jobs.Shard{Index: 1, Of: 2})
	require.ErrorIs(t, err, jobs.ErrBusy)
	require.NoError(t, f.Close())
	first, err := OpenFolder(dir, s, jobs.Shard{Index: 1, Of: 2})
	require.NoError(t, err)
	_, err = OpenFolder(dir, s, all)
	require.ErrorIs(t, err, jobs.ErrBusy)
	_, err = OpenFolder(dir, s, jobs.Shard{Index: 1, Of: 2})
	require.ErrorIs(t, err, jobs.ErrBusy)
	second, err := OpenFolder(dir, s, jobs.Shard{Index: 2, Of: 2}) // shards share a folder
	require.NoError(t, err)
	require.NoError(t, first.Close())
	require.NoError(t, second.Close())

	before := listing(t, dir)
	for says, change := range map[string]func(*Grid){
		"it has the systems [sosp vllm-v1], not [sosp]":   func(g *Grid) { g.Systems = g.Systems[:1] },
		"it has the rates [1 2], not [1 2 3]":             func(g *Grid) { g.Rates = append(g.Rates, 3) },
		"it has the seeds [1 2], not [2 3]":               func(g *Grid) { g.Seeds = []uint64{2, 3} },
		"it has block sizes [16], not [32]":               func(g *Grid) { g.BlockSizes = []int{32} },
		"its settings are\n  {\"duration\":4,\"seed\":0,": func(g *Grid) { g.Base.Duration = 5 },
	} {
		g := grid()
		change(&g)
		_, err := OpenFolder(dir, open(t, g), jobs.Shard{Index: 1, Of: 3})
		require.ErrorIs(t, err, ErrOther)
		require.ErrorContains(t, err, says)
	}
	built := open(t, grid())
	built.Program = "another"
	for i := range built.Jobs {
		require.NoError(t, built.open(&built.Jobs[i]))
	}
	_, err = OpenFolder(dir, built, all)
	require.ErrorContains(t, err, "another build")
	require.Equal(t, before, listing(t, dir))
}

// Ensure that of shards of different sweeps that begin in one folder at once one has it.
func TestOnlyOneSweepBeginsAFolder(t *testing.T) {
	var sweeps []*Sweep
	for seed := range uint64(4) {
		g := grid()
		g.Seeds = []uint64{seed}
		sweeps = append(sweeps, open(t, g))
	}
	for range 20 {
		dir, errs := t.TempDir(), make(chan error)
		for _, s := range sweeps {
			go func() { errs <- s.begin(dir) }()
		}
		began := 0
		for range sweeps {
			if err := <-errs; err == nil {
				began++
			} else {
				require.ErrorIs(t, err, ErrOther)
			}
		}
		require.Equal(t, 1, began)
		require.Len(t, listing(t, dir), 1, "nothing temporary stays")
	}
}

// listing returns the files of a folder with their text.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		files[e.Name()] = string(text)
	}
	return files
}

func TestConflictsOfShardsAreSeen(t *testing.T) {
	s := open(t, grid())
	dir := t.TempDir()
	run(t, dir, s, all, 1)
	text, err := os.ReadFile(results(dir))
	require.NoError(t, err)
	lines := strings.SplitAfter(string(text), "\n")
	var o Outcome
	require.NoError(t, json.Unmarshal([]byte(lines[2]), &o))

	// A result replaces a failure, whichever is read first.
	failed, err := json.Marshal(Outcome{Job: o.Job, Error: "no more memory"})
	require.NoError(t, err)
	for _, name := range []string{"results-1-of-0.jsonl", "results-1-of-2.jsonl"} {
		write(t, dir, name, string(failed)+"\n")
		require.Empty(t, state(t, dir, s).Failed(all))
	}

	o.Result.Normalized.P99 *= 1.0000001
	changed, err := json.Marshal(o)
	require.NoError(t, err)
	second := write(t, dir, "results-1-of-2.jsonl", lines[0]+string(changed)+"\n")
	_, err = OpenFolder(dir, s, all)
	require.ErrorIs(t, err, ErrTwice)
	require.ErrorContains(t, err, o.Job.String())
	require.ErrorContains(t, err, "line 3 of "+results(dir)+" and line 2 of "+second)
}

// Ensure that every number of a result is in the table, under its own name.
func TestTheTableHasAllNumbers(t *testing.T) {
	r := &sim.Result{Seconds: 8, Iterations: 5, Answered: 4, Generated: 40, SwapBlocks: 7,
		Normalized: sim.Spread{P99: 0.25}, EndToEnd: sim.Spread{Max: 3}, TTFT: sim.Spread{Mean: 0.1},
		TPOT: sim.Spread{P50: 0.03}, Window: sim.Window{Saving: 0.5}}
	s := &Sweep{Jobs: []Job{{Key: "k", System: "sosp", BlockSize: 16, Rate: 0.75, Seed: 3}}}
	st := &State{Sweep: s, Outcomes: []*Outcome{{Job: s.Jobs[0], Result: r}}}
	var b strings.Builder
	require.NoError(t, st.writeCSV(&b))
	rows, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
	require.NoError(t, err)
	spread := func(name string) string {
		return strings.ReplaceAll("?_mean ?_p50 ?_p90 ?_p95 ?_p99 ?_max ", "?", name)
	}
	require.Equal(t, strings.Fields("system block_size rate seed error seconds iterations arrived answered refused "+
		"dropped refusal "+spread("normalized")+spread("end_to_end")+spread("first")+spread("between")+"good goodput generated "+
		"prompted hits recomputed swapped swap_blocks copy_blocks window_iterations window_requests window_sequences "+
		"window_waiting window_milliseconds window_tokens window_reservation window_internal window_external "+
		"window_saving requests_per_second tokens_per_second max_concurrency"), rows[0])
	cells := map[string]string{}
	for i, name := range rows[0] {
		if rows[1][i] != "0" && rows[1][i] != "" {
			cells[name] = rows[1][i]
		}
	}
	require.Equal(t, map[string]string{
		"system": "sosp", "block_size": "16", "rate": "0.75", "seed": "3", "seconds": "8", "iterations": "5", "answered": "4",
		"generated": "40", "swap_blocks": "7", "normalized_p99": "0.25", "end_to_end_max": "3", "first_mean": "0.1",
		"between_p50": "0.03", "window_saving": "0.5", "requests_per_second": "0.5", "tokens_per_second": "5",
	}, cells)
}

func TestTheSummaryNamesTheCapacityOfEachSystem(t *testing.T) {
	g := Grid{Systems: []string{"orca-max", "sosp", "vllm-v1"}, BlockSizes: []int{16}, Rates: []float64{1, 2, 3},
		Seeds: []uint64{1, 2}}
	st := &State{Sweep: &Sweep{Grid: g, Jobs: g.jobs()}}
	result := func(mean float64) *sim.Result {
		return &sim.Result{Arrived: 10, Answered: 10, Normalized: sim.Spread{Mean: mean}}
	}
	for _, mean := range []float64{0.6, 0.6, 0.3, 0.3, 0.9, 0.9 /**/, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9 /**/, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1} {
		st.Outcomes = append(st.Outcomes, &Outcome{Result: result(mean)})
	}
	st.Outcomes[10].Result.Refused, st.Outcomes[10].Result.Answered = 2, 8
	for i, o := range st.Outcomes {
		o.Job = st.Jobs[i]
	}
	var b strings.Builder
	require.NoError(t, st.WriteSummary(&b, 0.5))
	require.Equal(t, `system    block  1/s   2/s  3/s    up to 0.5 s/token
orca-max  16     0.6   0.3  0.9    below 1/s
sosp      16     0.15  0.5  0.85*  2/s
vllm-v1   16     0.1   0.1  0.1    3/s or more
Mean normalized latency in s/token, seeds 1-2; *: of what was answered, which is not all that arrived.
`, b.String())
	st.Outcomes[12].Result = nil
	st.Outcomes[14].Result = &sim.Result{Arrived: 3}
	st.Outcomes[15].Result = &sim.Result{Arrived: 3}
	b.Reset()
	require.NoError(t, st.WriteSummary(&b, 0.5))
	require.Contains(t, b.String(), "vllm-v1   16     failed  -*   0.1    below 1/s\n")
}
