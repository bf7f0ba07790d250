package grade_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/grade"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

// An attack is a hostile submission and its expected result, in the words of attacks.txt.
type attack struct{ id, source, expect string }

// typical lists the attacks that every test run makes, in make test only one of each of five kinds. Every test run also
// makes the rejected attacks except macro_bomb, because they take little time. make exhaustive runs all attacks.
var typical = level.First(5, strings.Fields(`exit_later loop forged_replies fork_bomb writes_files
	exit_under_memcheck memory_bomb print_much forged_events closes_descriptors fake_report`))

// attacks returns the attacks of this test run. From attacks.txt it takes the typical and the rejected ones, or all in
// make exhaustive. It adds attacks whose text is too long for the file.
func attacks(t *testing.T) []attack {
	t.Helper()
	correct := corpus.Correct(t)
	kernel := read(t, submissions+"hostile/kernel.c")
	all := []attack{
		{"parentheses", correct + "static int deep(void) { return " + strings.Repeat("(", 100_000) + "1" + strings.Repeat(")", 100_000) + "; }\n", "rejected"},
	}
	if level.Exhaustive() {
		all = append(all, attack{"errors", correct + strings.Repeat("unknown f();\n", 30_000), "rejected"})
	}
	for _, m := range corpus.Mutants(t, "hostile/attacks.txt") {
		rejected := m.Expect == "rejected" && m.ID != "macro_bomb" // which takes the compiler up to a limit, as in package build
		if !rejected && !slices.Contains(typical, m.ID) && !level.Exhaustive() {
			continue
		}
		source, err := m.Apply(correct)
		require.NoError(t, err)
		all = append(all, attack{m.ID, strings.Replace(source, "/* kernel.c */\n", kernel, 1), m.Expect})
	}
	return all
}

func deserved(expect string, r *grade.Report) bool {
	less := r.Score < r.MaxScore
	rejected := r.Rejected != nil && r.Score == 0
	found := func(matches func(f grade.Finding) bool) bool {
		return rejected || less && slices.ContainsFunc(r.Findings, matches)
	}
	switch expect {
	case "attack":
		return rejected && r.Rejected.Stage == grade.Attack
	case "rejected":
		return rejected
	case "less":
		return less
	case "hangs":
		return found(func(f grade.Finding) bool { return f.Hangs && strings.Contains(f.Actual, "it does not come back: it ") })
	case "memcheck":
		other := func(f grade.Finding) bool { return !strings.Contains(f.Name, "memcheck") }
		return rejected || less && !slices.ContainsFunc(r.Findings, other)
	case "full":
		return !less
	case "harmless":
		return rejected || !less
	}
	return false
}

// Ensure that hostile submissions do no harm when they are graded in one class with honest ones. Each attack gets its
// expected result, the honest submissions get the same points as without the attacks, and the attacks have no other
// effects.
func TestHostileSubmissionsHarmNobody(t *testing.T) {
	level.SkipQuick(t)
	temp := t.TempDir()
	for folder := temp; len(folder) > len(os.TempDir()); folder = filepath.Dir(folder) {
		require.NoError(t, os.Chmod(folder, 0o755)) // another uid executes what is in it
	}
	t.Setenv("TMPDIR", temp)
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	require.NoError(t, os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)) // VmHWM begins anew
	files := t.TempDir()
	g, err := grade.NewGrader()
	require.NoError(t, err)
	g.Traces, g.Tries, g.Seed = 4, 0, 1

	honest := honestOnes(t)
	alone := gradeAll(t, g, files, honest)
	hostile := attacks(t)
	class := append(slices.Clone(hostile), honest...)
	together := gradeAll(t, g, files, class)
	require.NoError(t, g.Close())

	for i, a := range hostile {
		r := together[i]
		if r == nil {
			t.Errorf("%s was not graded", a.id)
		} else if !deserved(a.expect, r) {
			t.Errorf("%s: expect %s, got %.1f points: %s %v", a.id, a.expect, r.Score, summary(r), r.Rejected)
		}
	}
	for i, a := range honest {
		require.Equal(t, summary(alone[i]), summary(together[len(hostile)+i]), "%s in a class with hostile ones", a.id)
	}

	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left, "files left behind")
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm", "."} {
		require.NoFileExists(t, filepath.Join(dir, "llmgrade-was-here"))
	}
	require.Empty(t, processesOf(t, temp), "processes left behind")
	require.Less(t, peak(t), 400<<20, "bytes of the grader's memory")
}

func honestOnes(t *testing.T) (all []attack) {
	t.Helper()
	if level.Exhaustive() {
		all = append(all, attack{id: "correct", source: corpus.Correct(t)})
	}
	return append(all, attack{id: "C5", source: corpus.Source(t, "C5")})
}

// gradeAll grades a class, four submissions at a time. To save time, gradeAtOnce omits the sweeps. For honest
// submissions, and for attacks that must lose points (less), it plays only directed traces. For attacks that must hang,
// it plays only one trace. In make exhaustive and with -loaded it omits nothing.
func gradeAll(t *testing.T, g *grade.Grader, dir string, class []attack) (reports []*grade.Report) {
	t.Helper()
	for i, r := range gradeAtOnce(g, dir, class, 4) {
		if r.trouble != nil {
			t.Errorf("%s: %v", class[i].id, r.trouble)
		}
		reports = append(reports, r.report)
	}
	return reports
}

// A graded is the result of grading one file. The report is nil if the grader failed; trouble is then the error.
type graded struct {
	report  *grade.Report
	trouble error
}

func gradeAtOnce(g *grade.Grader, dir string, files []attack, number int) []graded {
	results := make([]graded, len(files))
	var wait sync.WaitGroup
	turns := make(chan struct{}, number)
	for i, f := range files {
		grader := *g
		if !level.Exhaustive() && *loaded == 0 {
			grader.LeaveOutSweeps()
			switch f.expect {
			case "", "less":
				grader.Only = "task"
			case "hangs":
				grader.Only = "task4_stores_at_the_offset" // each call that hangs takes a second
			}
		}
		file := filepath.Join(dir, strings.ReplaceAll(f.id, " ", "_")+".c")
		wait.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if results[i].trouble = os.WriteFile(file, []byte(f.source), 0o644); results[i].trouble == nil {
				results[i].report, results[i].trouble = grader.File(file)
			}
		})
	}
	wait.Wait()
	return results
}

func summary(r *grade.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%.2f", r.Score)
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "; %s step %d: %s is %s, not %s", f.Name, f.Step, f.Field, f.Actual, f.Expected)
	}
	return b.String()
}

func processesOf(t *testing.T, dir string) (found []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, process := range all {
		line, _ := os.ReadFile(filepath.Join(process, "cmdline"))
		exe, _ := os.Readlink(filepath.Join(process, "exe"))
		if bytes.Contains(line, []byte(dir)) || strings.HasPrefix(exe, dir) {
			found = append(found, string(line))
		}
	}
	return found
}

// peak returns the most memory that this process has used so far, in bytes.
func peak(t *testing.T) int {
	t.Helper()
	for line := range strings.SplitSeq(read(t, "/proc/self/status"), "\n") {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
			n, err := strconv.Atoi(fields[1])
			require.NoError(t, err)
			return n << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}
