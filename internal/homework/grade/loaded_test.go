package grade_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/grade/judging/compare"
	"llmmemory/internal/testkit/corpus"
)

var loaded = flag.Int("loaded", 0, "grade every N-th file of the corpus alone and beside 20 busy programs, and check that no score differs")

const faulting = `#include <string.h>
#include <sys/mman.h>
int main(void) {
    for (;;) {
        char *p = mmap(NULL, 16 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(p, 1, 16 << 20);
        munmap(p, 16 << 20);
    }
}
`

func busy(t *testing.T) (end func()) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "faulting")
	require.NoError(t, os.WriteFile(program+".c", []byte(faulting), 0o644))
	out, err := exec.Command("gcc", "-O1", program+".c", "-o", program).CombinedOutput()
	require.NoError(t, err, "%s", out)
	var all []*exec.Cmd
	for i := range 20 {
		cmd := exec.Command("/bin/sh", "-c", "while :; do :; done")
		if i%5 == 0 {
			cmd = exec.Command(program)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		require.NoError(t, cmd.Start())
		all = append(all, cmd)
	}
	return func() {
		for _, cmd := range all {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
}

// Ensure that a file gets the same points on a busy machine as on an idle one. In rare cases the grader may fail on a
// busy machine instead.
func TestNoScoreDependsOnTheLoad(t *testing.T) {
	if *loaded == 0 {
		t.Skip("only with -loaded N, as make loaded has it")
	}
	call, process := compare.Patience.Call, compare.Patience.Process
	compare.Patience.Call, compare.Patience.Process = 4*call, 4*process // as in llmgrade
	defer func() { compare.Patience.Call, compare.Patience.Process = call, process }()
	g := newGrader(t)
	g.Tries, g.Traces, g.Seed = 0, 4, 1

	var files []attack
	for _, r := range rows(t) {
		files = append(files, attack{id: r.name, source: r.source})
	}
	add := func(i int, m corpus.Mutant) {
		if i%*loaded == 0 {
			source, err := m.Apply(corpus.Correct(t))
			require.NoError(t, err)
			files = append(files, attack{id: m.ID, source: source})
		}
	}
	for i, m := range mutants(t) {
		add(i, m)
	}
	for i, a := range attacks(t) {
		if i%*loaded == 0 || slices.Contains([]string{"loop", "memory_bomb", "print_much", "forged_replies"}, a.id) {
			files = append(files, a)
		}
	}

	all := func() []graded {
		begin := time.Now()
		results := gradeAtOnce(g, t.TempDir(), files, 8)
		t.Logf("%d files in %v", len(files), time.Since(begin).Round(time.Second))
		return results
	}
	alone := all()
	end := busy(t)
	beside := all()
	end()
	troubles := 0
	for i, f := range files {
		a, b := alone[i], beside[i]
		for when, trouble := range map[string]error{"alone": a.trouble, "beside busy programs": b.trouble} {
			if trouble != nil {
				troubles++
				t.Logf("%s: trouble %s: %v", f.id, when, trouble)
			}
		}
		if a.trouble == nil && b.trouble == nil && (a.report.Score != b.report.Score || !slices.Equal(a.report.Failed(), b.report.Failed())) {
			t.Errorf("%s: %.2f points alone, %.2f beside busy programs; failed: %v and %v",
				f.id, a.report.Score, b.report.Score, a.report.Failed(), b.report.Failed())
		}
	}
	t.Logf("%d of %d gradings ended in trouble", troubles, 2*len(files))
	require.LessOrEqual(t, troubles, 2*len(files)/50)
}
