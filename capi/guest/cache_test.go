package guest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// Ensure that llm_cache.h declares its functions in the order of its index. The index is at the beginning of the file
// and lists every function. Rarely needed functions are last.
func TestTheHeaderBeginsWithTheCallsOfEveryHost(t *testing.T) {
	public := declared(t, "capi/cache/llm_cache.h")
	text, err := os.ReadFile(filepath.Join(root, "capi", "cache", "llm_cache.h"))
	require.NoError(t, err)
	order := strings.Fields(`error_text error_detail open close add abort schedule update step_failed statistics progress table
		plan_memory plan_workers release fork set_drafts match received load_failed sent drain drain_msgpack reset pause reset_encoder set_log`)
	body, offset := string(text), 0
	index := body[strings.Index(body, "THE CALLS"):strings.Index(body, "SEVERAL STEPS IN FLIGHT")]
	for _, name := range order {
		require.Contains(t, public, "llm_cache_"+name)
		require.Regexp(t, `\b(llm_cache)?_`+name+`\b`, index)
		next := strings.Index(body[offset:], "llm_cache_"+name+"(")
		require.GreaterOrEqual(t, next, 0, "%s is not there, or too early", name)
		offset += next
	}
	for _, name := range public {
		if after, ok := strings.CutPrefix(name, "llm_cache_"); ok {
			require.Contains(t, order, after)
		}
	}
}

var example = filepath.Join("..", "examples", "serve")

func (w way) compileCache(t *testing.T, name string, options ...string) string {
	t.Helper()
	return w.link(t, name, options, map[way][]string{
		shared:  {"-L" + library(""), "-lllm_cache", "-lllm_memory", "-Wl,--as-needed,-rpath," + library("")},
		archive: {library("libllm_cache.a"), library("libllm_memory.a")},
	})
}

// memcheckCache is memcheck at its strictest, but for the runtime's threads.
func memcheckCache(t *testing.T, command ...string) result {
	t.Helper()
	// Without --fair-sched, threads that wait in a loop could keep the other threads from running.
	return underValgrind(t, nil, append([]string{"--fair-sched=try", "--leak-check=full", "--show-leak-kinds=all", "--errors-for-leak-kinds=all",
		"--suppressions=" + filepath.Join(root, "valgrind", "llm_cache.supp"), "--error-exitcode=99"}, command...)...)
}

// checkCache runs a program with sanitizers, and under Valgrind with args.
func checkCache(t *testing.T, w way, name string, args ...string) {
	t.Helper()
	r := succeed(t, t.TempDir(), nil, w.compileCache(t, name, sanitizers, "-fno-sanitize-recover=all"))
	require.Empty(t, r.stderr)
	r = memcheckCache(t, append([]string{w.compileCache(t, name)}, args...)...)
	require.Zero(t, r.status, r.stderr)
}

func TestTheCacheServesTheExample(t *testing.T) {
	each(t, linked, func(t *testing.T, w way) {
		r := succeed(t, t.TempDir(), nil, w.compileCache(t, example))
		require.Contains(t, r.stdout, "64 requests and a fork of one")
		if level.Exhaustive() { // else cache_traffic makes these calls under Valgrind
			checkCache(t, w, example)
		}
	})
}

func TestTheCacheServesTheExampleWithImages(t *testing.T) {
	level.SkipNormal(t)
	t.Parallel()
	images := filepath.Join("..", "examples", "images")
	r := succeed(t, t.TempDir(), nil, shared.compileCache(t, images))
	require.Contains(t, r.stdout, "48 requests with 72 images")
	if level.Exhaustive() {
		checkCache(t, shared, images)
	}
}

func TestEveryCallOfTheCacheKeepsItsHeader(t *testing.T) {
	programs := []string{"cache_errors", "cache_calls", "cache_flight", "cache_growth", "cache_hostile", "cache_items", "cache_traffic", "cache_transfer"}
	for _, program := range programs {
		t.Run(program, func(t *testing.T) {
			each(t, linked, func(t *testing.T, w way) {
				succeed(t, t.TempDir(), nil, w.compileCache(t, program))
				if level.Exhaustive() {
					checkCache(t, w, program)
				}
			})
		})
	}
	// The tests run in one process, because Valgrind spends most of its time translating the Go runtime.
	// cache_errors is the first test, because it expects that no call has failed before.
	t.Run("all of them, checked", func(t *testing.T) {
		level.SkipNormal(t)
		t.Parallel()
		const rounds = "2" // of cache_traffic; of attention_errors the types
		// Sanitizers see the program's code only, of which sanitizedCompanies has enough.
		r := memcheckCache(t, shared.compileCache(t, strings.Join(programs, "+")+"+attention_errors"), rounds)
		require.Zero(t, r.status, r.stderr)
	})
}

func TestCachesBeyondTheLimitsAreRefused(t *testing.T) {
	level.SkipNormal(t)
	t.Parallel()
	succeed(t, t.TempDir(), nil, shared.compileCache(t, "cache_errors"), "limits")
	succeed(t, t.TempDir(), nil, shared.compileCache(t, "cache_memory"))
}

func TestThreadsCanUseOneCacheOrTheirOwn(t *testing.T) {
	level.SkipNormal(t)
	prog := shared.compileCache(t, "cache_threads")
	eachMode(t, prog, []mode{{"one", "200"}, {"own", "200"}, {"close", level.Pick("10", "50")}})
	t.Run("under Valgrind", func(t *testing.T) {
		for _, m := range level.Pick([]mode{{"close", "1"}}, []mode{{"one", "3"}, {"own", "3"}, {"close", "2"}}) {
			// glibc keeps the stack of an ended thread. This stack points into the middle of the thread's dtv (a table
			// of pointers), so Memcheck reports the dtv as "possibly lost".
			r := memcheckCache(t, "--errors-for-leak-kinds=definite,indirect", prog, m.name, m.times)
			require.Zero(t, r.status, r.stderr)
		}
	})
}

func TestManyRequestsAndManyCachesLeaveMemoryFlat(t *testing.T) {
	level.SkipNormal(t)
	r := succeed(t, t.TempDir(), nil, shared.compileCache(t, "cache_flat"), level.Pick("200000", "1000000"), level.Pick("20", "60"))
	t.Log(r.stdout)
}

func TestBothLibrariesLiveInOneProcess(t *testing.T) {
	each(t, linked, func(t *testing.T, w way) {
		succeed(t, t.TempDir(), nil, w.compileCache(t, "cache_both"))
	})
}

func TestMemcheckStillFindsTheHostsMistakeBehindTheCache(t *testing.T) {
	level.SkipNormal(t)
	t.Parallel()
	r := memcheckCache(t, shared.compileCache(t, "cache_unwritten"))
	require.Equal(t, 99, r.status)
	require.Contains(t, r.stderr, "uninitialised value")
	content, err := os.ReadFile(filepath.Join(root, "valgrind", "llm_cache.supp"))
	require.NoError(t, err)
	require.NotRegexp(t, `Memcheck:[^L]`, string(content))
}

func installed(t *testing.T) string {
	return buildOnce(t, "installed", func(dir string) string {
		r := runMake(t, "install", "PREFIX="+filepath.Join(dir, "opt"))
		require.Zero(t, r.status, r.stderr)
		return "opt"
	})
}

func TestAnInstalledCacheIsFoundByPkgConfig(t *testing.T) {
	level.SkipNormal(t)
	t.Parallel()
	need(t, "pkg-config")
	prefix := installed(t)
	libdir := filepath.Join(prefix, "lib")
	flags := succeed(t, t.TempDir(), []string{"PKG_CONFIG_PATH=" + filepath.Join(libdir, "pkgconfig")}, "pkg-config", "--cflags", "--libs", "llm_cache")
	prog := filepath.Join(t.TempDir(), "prog")
	command := append([]string{"gcc"}, strings.Fields(courseFlags)...)
	command = append(append(command, source(example+".c"), "-o", prog), strings.Fields(flags.stdout)...)
	succeed(t, t.TempDir(), nil, command...)
	succeed(t, t.TempDir(), []string{"LD_LIBRARY_PATH=" + libdir}, prog)
}

func TestTheInstalledPythonModulesServeTheirExamples(t *testing.T) {
	level.SkipNormal(t)
	t.Parallel()
	need(t, "python3")
	prefix := installed(t)
	for _, name := range []string{"example.py", "example_attention.py"} {
		content, err := os.ReadFile(filepath.Join(root, "capi", "cache", "python", name))
		require.NoError(t, err)
		alone := filepath.Join(t.TempDir(), name) // the modules beside it are not to be found
		require.NoError(t, os.WriteFile(alone, content, 0o644))
		r := succeed(t, t.TempDir(), []string{
			"PYTHONPATH=" + filepath.Join(prefix, "share", "llm_memory", "python"), "PYTHONDONTWRITEBYTECODE=1",
			"LD_LIBRARY_PATH=" + filepath.Join(prefix, "lib"),
		}, "python3", alone)
		require.Contains(t, r.stdout, "24 requests", name)
	}
}

func runPython(t *testing.T, python, program string) {
	t.Helper()
	succeed(t, t.TempDir(), []string{
		"PYTHONPATH=" + filepath.Join(root, "capi", "cache", "python"), "PYTHONDONTWRITEBYTECODE=1", "LD_LIBRARY_PATH=" + library(""),
	}, python, source(program))
}

func TestThePythonModulesHaveBlocksOfTheCallerAndRefuseNumbersOutOfRange(t *testing.T) {
	level.SkipNormal(t)
	t.Parallel()
	need(t, "python3")
	for _, program := range []string{"attention_blocks.py", "cache_ranges.py"} {
		t.Run(program, func(t *testing.T) { runPython(t, "python3", program) })
	}
}

func TestThePythonModulesRefuseOtherTypesAndTakeNumpysArrays(t *testing.T) {
	level.SkipNormal(t)
	t.Parallel()
	const python = "/usr/bin/python3" // Debian's, which has python3-numpy
	if exec.Command(python, "-c", "import numpy").Run() != nil {
		t.Skip("no Python with numpy here (Debian: python3-numpy)")
	}
	runPython(t, python, "python_types.py")
}
