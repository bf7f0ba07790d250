package guest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// courseFlags are the handout's.
const courseFlags = "-std=c11 -Wall -Wextra -Wpedantic -Werror -O2 -ggdb"

// A way is one of the ways a C program comes to the library.
type way string

const (
	shared  way = "shared"  // -lllm_memory
	archive way = "archive" // libllm_memory.a at the end of the course's line
	dropin  way = "dropin"  // llm_memory.c of `make dropin` on the course's line
	loaded  way = "dlopen"  // dlopen and dlsym, at the first call; dlclose at exit
	plainC  way = "plain C" // no library, but a submission, to compare with
)

var (
	everyWay = []way{shared, archive, dropin, loaded}
	linked   = []way{shared, archive}
)

// someWays are all in make test-long, else two: one that loads the library when the
// program starts, and one that has it inside.
func someWays() []way { return level.Pick(linked, everyWay) }

// oneWay is as linked in make test-long, else the first.
func oneWay() []way { return level.Pick(linked[:1], linked) }

// source is the path of a program in testdata/guest.
func source(name string) string { return filepath.Join(root, "testdata", "guest", name) }

func library(name string) string { return filepath.Join(root, "build", name) }

// programs are the executables that compile has made, by what was asked for. They
// lie in a folder that TestMain removes.
var programs struct {
	dir string
	all sync.Map
}

// compile makes an executable of testdata/guest/name.c in a directory of its own, once,
// and returns the path. Options go in front of everything else.
func (w way) compile(t *testing.T, name string, options ...string) string {
	t.Helper()
	need(t, "gcc")
	made, _ := programs.all.LoadOrStore(fmt.Sprint(w, name, options), &program{})
	p := made.(*program)
	p.Do(func() { p.path = w.build(t, name, options) })
	require.NotEmpty(t, p.path, "another test could not compile it")
	return p.path
}

type program struct {
	sync.Once
	path string
}

func (w way) build(t *testing.T, name string, options []string) string {
	t.Helper()
	dir, err := os.MkdirTemp(programs.dir, "")
	require.NoError(t, err)
	if w == dropin {
		return compileDropin(t, dir, name, options)
	}
	command := compiler(options)
	switch w {
	case shared:
		command = append(command, object(t, name, options), "-L"+library(""), "-lllm_memory", "-Wl,-rpath,"+library(""))
	case archive:
		command = append(command, object(t, name, options), library("libllm_memory.a"))
	case plainC:
		command = append(command, object(t, name, options), filepath.Join(root, "testdata", "submissions", "correct", "llm_memory.c"))
	case loaded:
		command = append(command, source(name+".c"), "-DLOADED", `-DLIBRARY="`+library("libllm_memory.so")+`"`, source("loader.c"))
	}
	succeed(t, dir, nil, append(command, "-o", "prog")...)
	return filepath.Join(dir, "prog")
}

// object compiles testdata/guest/name.c, once for all ways to link it.
func object(t *testing.T, name string, options []string) string {
	t.Helper()
	made, _ := programs.all.LoadOrStore(fmt.Sprint("object", name, options), &program{})
	p := made.(*program)
	p.Do(func() {
		dir, err := os.MkdirTemp(programs.dir, "")
		require.NoError(t, err)
		succeed(t, dir, nil, append(compiler(options), "-c", source(name+".c"), "-o", "prog.o")...)
		p.path = filepath.Join(dir, "prog.o")
	})
	require.NotEmpty(t, p.path, "another test could not compile it")
	return p.path
}

func compiler(options []string) []string {
	command := append([]string{"gcc"}, strings.Fields(courseFlags)...)
	command = append(command, options...)
	return append(command, "-pthread", "-DWITH_EXT", "-I"+root, "-I"+filepath.Join(root, "capi"))
}

// compileDropin uses the two command lines of the course as they are, in a
// homework folder.
func compileDropin(t *testing.T, dir, name string, options []string) string {
	t.Helper()
	homework(t, dir, name)
	r := runMake(t, "dropin", "DIR="+dir)
	require.Zero(t, r.status, r.stderr)
	line := append([]string{"gcc"}, strings.Fields(courseFlags)...)
	succeed(t, dir, nil, append(line, "-c", "llm_memory.c", "-o", "llm_memory.o")...)
	line = append(line, options...)
	succeed(t, dir, nil, append(line, "llm_memory.c", "grader.c", "-o", "prog")...)
	return filepath.Join(dir, "prog")
}

// homework puts the header and a program as grader.c into dir.
func homework(t *testing.T, dir, name string) {
	t.Helper()
	copyFile(t, filepath.Join(root, "llm_memory.h"), filepath.Join(dir, "llm_memory.h"))
	copyFile(t, source("check.h"), filepath.Join(dir, "check.h"))
	copyFile(t, source(name+".c"), filepath.Join(dir, "grader.c"))
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, content, 0o644))
}

// each runs a test once per way, side by side.
func each(t *testing.T, ways []way, test func(t *testing.T, w way)) {
	for _, w := range ways {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			test(t, w)
		})
	}
}

func TestTheSameProgramLinkedInAnyWayLeavesTheSameMemory(t *testing.T) {
	each(t, everyWay, func(t *testing.T, w way) {
		prog := w.compile(t, "scenario")
		r := succeed(t, t.TempDir(), nil, prog)
		require.Equal(t, "scenario: as expected\n", r.stdout)
		require.Empty(t, r.stderr)
	})
}

func TestTheArchiveAtTheEndOfTheCoursesLineIsAllItTakes(t *testing.T) {
	t.Parallel()
	need(t, "gcc")
	dir := t.TempDir()
	homework(t, dir, "scenario")
	require.NoError(t, os.Rename(filepath.Join(dir, "grader.c"), filepath.Join(dir, "prog.c")))
	require.NoError(t, os.Symlink(library(""), filepath.Join(dir, "build")))
	line := "gcc " + courseFlags + " prog.c build/libllm_memory.a -o prog"
	succeed(t, dir, nil, strings.Fields(line)...)
	succeed(t, dir, nil, filepath.Join(dir, "prog"))
}

func TestManySequencesAndBatchesWorkInAnyWay(t *testing.T) {
	each(t, everyWay, func(t *testing.T, w way) {
		succeed(t, t.TempDir(), nil, w.compile(t, "many"))
	})
}

func TestAConstructorOfTheProgramMayCall(t *testing.T) {
	each(t, []way{shared, archive, dropin}, func(t *testing.T, w way) {
		dir := t.TempDir()
		succeed(t, dir, nil, w.compile(t, "early"))
	})
}
