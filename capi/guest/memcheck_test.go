package guest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// memcheck runs a program under Valgrind as strictly as a course's script can. Each block that is not freed is an
// error. Valgrind uses no rc file, no option from the environment and no suppression.
func memcheck(t *testing.T, env []string, command ...string) result {
	t.Helper()
	return underValgrind(t, env, append([]string{"--leak-check=full", "--show-leak-kinds=all",
		"--errors-for-leak-kinds=all", "--error-exitcode=9"}, command...)...)
}

// underValgrind runs Valgrind with options that make it faster. They do not change which errors it finds.
// --read-inline-info=no removes details from stack traces. --expensive-definedness-checks=no and plainLibc are used on
// amd64 only, because on arm64 the two together made Memcheck report false errors in the C library. shortTranslations
// is used on amd64 only, too.
func underValgrind(t *testing.T, env []string, arguments ...string) result {
	t.Helper()
	need(t, "valgrind")
	valgrind := []string{"valgrind", "--read-inline-info=no"}
	if runtime.GOARCH == "amd64" {
		valgrind = append(append(valgrind, "--expensive-definedness-checks=no"), shortTranslations()...)
		env = append([]string{"LD_LIBRARY_PATH=" + plainLibc(t)}, env...)
	}
	return run(t, t.TempDir(), env, append(valgrind, arguments...)...)
}

// shortTranslations returns the option that makes Valgrind translate less code. Valgrind 3.16
// introduced it.
var shortTranslations = sync.OnceValue(func() []string {
	version, _ := exec.Command("valgrind", "--version").Output()
	if minor, _ := strconv.Atoi(strings.Split(string(version)+"..", ".")[1]); minor < 16 {
		return nil
	}
	return []string{"--vex-guest-chase=no"}
})

// plainLibc returns a folder with a copy of the C library for which Valgrind finds no debug info, because reading
// debug info takes half of Valgrind's start time. If the library cannot be copied, the folder is empty. Tests that
// run script instead of underValgrind use the normal library.
func plainLibc(t *testing.T) string {
	t.Helper()
	return filepath.Dir(buildOnce(t, "libc", func(dir string) string {
		const name = "libc.so.6"
		found := strings.TrimSpace(succeed(t, dir, nil, "gcc", "-print-file-name="+name).stdout)
		r := run(t, dir, nil, "objcopy", "--remove-section=.note.gnu.build-id", "--remove-section=.gnu_debuglink", found, name)
		if r.status != 0 {
			_ = os.Remove(filepath.Join(dir, name))
		}
		return name
	}))
}

const (
	nothingLeft = "All heap blocks were freed -- no leaks are possible"
	noErrors    = "ERROR SUMMARY: 0 errors from 0 contexts (suppressed: 0 from 0)"
)

func requireClean(t *testing.T, r result) {
	t.Helper()
	requireCleanProcesses(t, r, 1)
}

func requireCleanProcesses(t *testing.T, r result, processes int) {
	t.Helper()
	require.Zero(t, r.status, r.stderr)
	require.Equal(t, processes, strings.Count(r.stderr, nothingLeft), r.stderr)
	require.Equal(t, processes, strings.Count(r.stderr, noErrors), r.stderr)
	for _, trouble := range []string{"Serious error when reading debug info", "unhandled", "Invalid "} {
		require.NotContains(t, r.stderr, trouble)
	}
}

func TestNothingIsLeftUnderValgrind(t *testing.T) {
	for _, program := range level.Pick([]string{"many+rearranged"}, []string{"many+rearranged", "scenario"}) {
		t.Run(program, func(t *testing.T) {
			// The other ways come with the ends of TestAProgramLeavesUnderValgrindWhatItLeavesWithPlainC.
			each(t, level.Pick([]way{loaded}, everyWay), func(t *testing.T, w way) {
				requireClean(t, memcheck(t, nil, w.compile(t, program)))
			})
		})
	}
}

// Ensure that Memcheck reports the same numbers of unfreed blocks at the end of a program, whether the program is
// linked with the library or with a llm_memory.c in plain C. Each case ends the program in another way.
func TestAProgramLeavesUnderValgrindWhatItLeavesWithPlainC(t *testing.T) {
	level.SkipNormal(t)
	for _, c := range []struct {
		name      string
		mode      string
		processes int   // each with nothing left; 0: what plain C leaves
		ways      []way // in make test-long
	}{
		{"it returns from main", "end", 1, nil}, // as those of TestNothingIsLeftUnderValgrind
		{"it forks", "fork", 2, nil},            // as a child and its child
		{"a child and its child exit", "child", 3, []way{shared}},
		{"its threads have ended", "joined", 1, nil}, // as those of TestThreadsAreCleanUnderPlainValgrind
		{"an exit handler calls", "atexit", 2, []way{shared}},
		{"a destructor calls", "destructor", 2, []way{archive}},
		{"other threads call", "threads", 0, []way{shared}},
		{"another thread exits", "thread", 0, []way{archive}},
		{"it loses its engine", "lost", 0, nil}, // as in TestAnEngineThatTheHostLosesIsDefinitelyLost
	} {
		t.Run(c.name, func(t *testing.T) {
			ways := []way{shared, archive, dropin}
			if c.mode == "atexit" || c.mode == "destructor" { // a drop-in's child ends by _exit; a late call loads it again
				ways = linked
			}
			each(t, level.Pick(c.ways, ways), func(t *testing.T, w way) {
				r := memcheck(t, nil, w.compile(t, "exiting"), c.mode)
				if c.processes > 0 {
					requireCleanProcesses(t, r, c.processes)
					return
				}
				require.Equal(t, 9, r.status, r.stderr)
				want := memcheck(t, nil, plainC.compile(t, "exiting"), c.mode)
				require.Equal(t, unfreedByThreads(t, want), unfreedByThreads(t, r), r.stderr)
			})
		})
	}
}

// script is what a course may run in place of valgrind.
func script() string { return filepath.Join(root, "valgrind", "run") }

// unfreed returns Memcheck's counts of the blocks that a program has not freed, for each kind of loss. Even with plain
// C, some blocks remain if a thread still runs at the end. glibc allocated them for the thread.
func unfreed(t *testing.T, r result) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, line := range regexp.MustCompile(`(\w+ lost|still reachable): [0-9,]+ bytes in ([0-9,]+) blocks`).FindAllStringSubmatch(r.stderr, -1) {
		found[line[1]] = line[2]
	}
	require.Len(t, found, 4, r.stderr)
	return found
}

// unfreedByThreads does the same as unfreed, but replaces the kinds "possibly lost" and "still reachable" by their sum.
// For each thread, glibc keeps a pointer into the middle of a block (the dtv). Memcheck counts such a block as possibly
// lost, or as reachable if some unused memory happens to contain the block's address. On arm64, which of the two it is
// differs from program to program.
func unfreedByThreads(t *testing.T, r result) map[string]string {
	t.Helper()
	found, sum := unfreed(t, r), 0
	for _, kind := range []string{"possibly lost", "still reachable"} {
		n, err := strconv.Atoi(strings.ReplaceAll(found[kind], ",", ""))
		require.NoError(t, err)
		sum += n
		delete(found, kind)
	}
	found["possibly lost or still reachable"] = strconv.Itoa(sum)
	return found
}

// Ensure that Memcheck reports an engine as lost if the host has lost its pointer to it. The library's caches must
// contain nothing that Memcheck takes for a pointer to the engine. The engine has 40 sequences, because the library
// caches look-ups only if there are many sequences.
func TestAnEngineThatTheHostLosesIsDefinitelyLost(t *testing.T) {
	level.SkipNormal(t)
	need(t, "valgrind")
	each(t, level.Pick([]way{dropin}, everyWay), func(t *testing.T, w way) {
		prog := w.compile(t, "leak")
		for _, sequences := range level.Pick([]int{40}, []int{0, 1, 40}) {
			t.Run(fmt.Sprint("with sequences ", sequences), func(t *testing.T) {
				r := run(t, t.TempDir(), nil, script(), prog, strconv.Itoa(sequences))
				require.Equal(t, 99, r.status, r.stderr)
				require.Contains(t, r.stderr, "definitely lost: 40 bytes in 1 blocks")
				// The counts; of each sequence itself and two tables.
				require.Equal(t, strconv.Itoa(1+3*sequences), unfreed(t, r)["indirectly lost"])
				require.Contains(t, r.stderr, "still reachable: 0 bytes in 0 blocks")
			})
		}
	})
}
