package runner_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/grade/build"
	"llmmemory/internal/grade/cputime"
	"llmmemory/internal/grade/runner"
	"llmmemory/internal/testkit/level"
)

// program links the correct submission with something in front of its llm_init's
// first statement.
func program(t testing.TB, before string) string {
	t.Helper()
	level.SkipQuick(t)
	kit, err := build.NewKit()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, kit.Close()) })
	source, err := os.ReadFile("../../../testdata/submissions/correct/llm_memory.c")
	require.NoError(t, err)
	const first = "    if (pool_addr == NULL ||"
	require.Contains(t, string(source), first)
	p, err := kit.Build("a test's", []byte(strings.Replace(string(source), first, before+first, 1)))
	require.NoError(t, err)
	return p.Native()
}

var patient = runner.Patience{Call: time.Minute, Process: time.Minute}

func TestACallReturnsWhatItAllocated(t *testing.T) {
	p, err := runner.Start(program(t, ""), patient)
	require.NoError(t, err)
	defer p.Close()
	r, err := p.Do(runner.Request{Call: runner.Init, Engine: runner.Pools, Size: 640})
	require.NoError(t, err)
	require.NotZero(t, r.Returned)
	require.Equal(t, []runner.Event{
		{What: runner.Malloc, At: uint64(r.Returned), Size: 40},
		{What: runner.Calloc, At: uint64(r.Returned) + 64, Size: 40},
	}, r.Events)
	r, err = p.Do(runner.Request{Call: runner.Init, Engine: runner.Pools, Size: 640, Fail: 2})
	require.NoError(t, err)
	require.Zero(t, r.Returned)
	require.Len(t, r.Events, 3) // the engine, refused, the engine given back
	require.Equal(t, runner.Refused, r.Events[1].What)
}

func TestOnlyTheFileIsLookedAt(t *testing.T) {
	p, err := runner.Start(program(t, ""), patient)
	require.NoError(t, err)
	defer p.Close()
	for _, c := range []struct {
		address, size uint64
		is            bool
	}{
		{runner.Pools, 1, true}, {runner.Pools - 1, 1, false}, {0, 0, false},
		{runner.Pools + runner.PoolsSize - 1, 1, true}, {runner.Pools + runner.PoolsSize - 1, 2, false},
		{runner.Heap, runner.HeapSize, true}, {runner.Heap, runner.HeapSize + 1, false}, {runner.Heap - 1, 2, false},
		{runner.Heap + runner.HeapSize, 1, false}, {runner.Heap + 8, ^uint64(0), false}, {^uint64(0), 2, false},
	} {
		require.Equal(t, c.is, p.At(c.address, c.size) != nil, "%#x, %d bytes", c.address, c.size)
	}
}

func TestAProcessIsBoundedInAll(t *testing.T) {
	const slow = "    for (volatile int i = 0; i < 20000000; i++) {\n    }\n" // some tens of milliseconds
	p, err := runner.Start(program(t, slow), runner.Patience{Call: time.Minute, Process: time.Second})
	require.NoError(t, err)
	defer p.Close()
	for err == nil {
		_, err = p.Do(runner.Request{Call: runner.Init, Engine: runner.Pools, Size: 640})
	}
	require.ErrorIs(t, err, cputime.ErrTime)
	require.ErrorContains(t, err, "all calls together took")
}

// Who writes to every open file reaches the grader's pipe: that is named, and not read as
// what the call has returned.
func TestWhatIsWrittenToTheGradersPipeIsNamed(t *testing.T) {
	const noise = "    extern long write(int, const void *, unsigned long);\n    for (int fd = 0; fd < 16; fd++) {\n        (void)!write(fd, \"twenty bytes of noise\", 20);\n    }\n"
	p, err := runner.Start(program(t, noise), patient)
	require.NoError(t, err)
	defer p.Close()
	_, err = p.Do(runner.Request{Call: runner.Init, Engine: runner.Pools, Size: 640})
	require.ErrorIs(t, err, runner.ErrAttack)
	require.ErrorContains(t, err, "it writes to the pipe")
}

// A program with more static data than it may have; the gate would not let it
// come so far.
func TestWhatDoesNotFitDoesNotStart(t *testing.T) {
	level.SkipQuick(t)
	dir, err := os.MkdirTemp("", "llmgrade-test-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o711))
	path := filepath.Join(dir, "large")
	require.NoError(t, os.WriteFile(path+".c", []byte("static volatile char much[1 << 30];\nint main(void) {\n    return much[5];\n}\n"), 0o644))
	out, err := exec.Command("gcc", "-static", path+".c", "-o", path).CombinedOutput()
	require.NoError(t, err, "%s", out)
	_, err = runner.Start(path, patient)
	require.ErrorIs(t, err, runner.ErrStart)
}

func BenchmarkStart(b *testing.B) {
	path := program(b, "")
	for b.Loop() {
		p, err := runner.Start(path, patient)
		require.NoError(b, err)
		p.Close()
	}
}

func BenchmarkDo(b *testing.B) {
	p, err := runner.Start(program(b, ""), patient)
	require.NoError(b, err)
	defer p.Close()
	for b.Loop() {
		_, err := p.Do(runner.Request{Call: runner.GiveBack})
		require.NoError(b, err)
	}
}
