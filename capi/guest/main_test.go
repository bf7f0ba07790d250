package guest_test

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"llmmemory/internal/testkit/level"
)

var root string

// libraries are the files to build and test. make test leaves out the archive of libllm_cache: it is made as that of
// libllm_memory is, and programs that are linked with it run only in make test-long.
var libraries = level.First(3, []string{"build/libllm_memory.so", "build/libllm_memory.a", "build/libllm_cache.so", "build/libllm_cache.a"})

// TestMain builds the libraries once, before the tests, so that no test measures a build or times out
// during one.
func TestMain(m *testing.M) {
	os.Exit(prepare(m))
}

func prepare(m *testing.M) int {
	if flag.Parse(); testing.Short() {
		fmt.Println("not with -short: it compiles C")
		return 0
	}
	var err error
	if root, err = filepath.Abs(filepath.Join("..", "..")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if programs.dir, err = os.MkdirTemp("", "guest-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(programs.dir)
	build := exec.Command("make", append([]string{"-s"}, libraries...)...)
	build.Dir = root
	build.Env = makeEnv()
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "make %s: %v\n%s", strings.Join(libraries, " "), err, out)
		return 1
	}
	status := m.Run()
	if status == 0 {
		if err := compareRuns(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return status
}

// noteInputs makes go test notice changes of files that only compilers and make read. Without it, go test would take
// the results from its cache. It opens the folders with these files, because the cache records what a test opens. It
// must be called in a test: the cache does not record what TestMain opens.
var noteInputs = sync.OnceFunc(func() {
	for _, dir := range []string{"capi", "internal/homework/course", "internal/block", "internal/scheduling/vllm", "internal/serving/attention", "internal/serving/kvstore", "internal/serving/parallel", "internal/serving/cuda", "internal/testkit/cudatest", "testdata/guest", "testdata/examples", "testdata/submissions/correct", "valgrind"} {
		_ = filepath.WalkDir(filepath.Join(root, dir), func(_ string, _ fs.DirEntry, err error) error { return err })
	}
	for _, file := range append([]string{"Makefile", "llm_memory.h"}, libraries...) {
		_, _ = os.Stat(filepath.Join(root, file))
	}
})

// makeEnv returns the environment for running make in a test. It removes variables that an outer make or a user's
// profile may have set. It also removes the compiler settings of the tests (.ci/cheaply), because the libraries must
// not be built with them.
func makeEnv() []string {
	var env []string
	for _, entry := range os.Environ() {
		switch name, _, _ := strings.Cut(entry, "="); name {
		case "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES", "PREFIX", "LIBDIR", "INCLUDEDIR", "DESTDIR", "DIR", "GOFLAGS":
		default:
			env = append(env, entry)
		}
	}
	return env
}
