package guest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// courseFlags are the handout's.
const courseFlags = "-std=c11 -Wall -Wextra -Wpedantic -Werror -O2 -ggdb"

// guestFlags are those of the guests. Most say nothing of the optimiser, which takes
// longer than they do: it is left to make test-long, and to the tests that repeat the
// handout's own command lines.
func guestFlags() []string {
	return append(strings.Fields(courseFlags), level.Pick("-O0", "-O2"))
}

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

// checked reports whether a program that is linked in way w also runs under Valgrind or
// with sanitizers, which takes longer than all else: in make test that is in the one way
// of the case, which differs from case to case; runs.golden shows which.
func (w way) checked(one way) bool { return w == one || level.Long() }

// source is the path of a program in testdata/guest.
func source(name string) string { return filepath.Join(root, "testdata", "guest", name) }

func library(name string) string { return filepath.Join(root, "build", name) }

// A guest is a program of testdata/guest, made into an executable in one of the ways.
type guest struct {
	name      string
	way       way
	sanitized bool
}

// programs are what has been compiled, by what was asked for. The files lie in a folder
// that TestMain removes.
var programs struct {
	dir    string
	all    sync.Map
	guests sync.Map // the guest of each path
}

// A program is compiled by the first test that asks for it.
type program struct {
	sync.Once
	path string
}

// once returns the path of what build makes in a folder of its own, the first time that
// key is asked for.
func once(t *testing.T, key string, build func(dir string) (name string)) string {
	t.Helper()
	made, _ := programs.all.LoadOrStore(key, &program{})
	p := made.(*program)
	p.Do(func() {
		dir, err := os.MkdirTemp(programs.dir, "")
		require.NoError(t, err)
		p.path = filepath.Join(dir, build(dir))
	})
	require.NotEmpty(t, p.path, "another test could not compile it")
	return p.path
}

// compile makes an executable of testdata/guest/name.c with libllm_memory and returns
// the path. Options go in front of everything else.
func (w way) compile(t *testing.T, name string, options ...string) string {
	t.Helper()
	return w.link(t, name, options, map[way][]string{
		shared:  {"-L" + library(""), "-lllm_memory", "-Wl,-rpath," + library("")},
		archive: {library("libllm_memory.a")},
		plainC:  {filepath.Join(root, "testdata", "submissions", "correct", "llm_memory.c")},
	})
}

// link links an object, which is compiled once for all ways. The drop-in and dlopen come
// as a source. A name like "a+b" is a program that does what a does, and then what b does.
func (w way) link(t *testing.T, name string, options []string, libraries map[way][]string) string {
	t.Helper()
	need(t, "gcc")
	prog := once(t, fmt.Sprint(w, name, options, libraries[w]), func(dir string) string {
		command := compiler(options)
		switch w {
		case dropin:
			compileDropin(t, dir, name, options)
			return "prog"
		case loaded:
			command = append(command, source(name+".c"), "-DLOADED", `-DLIBRARY="`+library("libllm_memory.so")+`"`, source("loader.c"))
		default:
			if parts := strings.Split(name, "+"); len(parts) > 1 {
				command = append(command, together(t, dir, parts))
				for _, part := range parts {
					command = append(command, object(t, part, append(slices.Clone(options), "-Dmain="+part)))
				}
			} else {
				command = append(command, object(t, name, options))
			}
			command = append(command, libraries[w]...)
		}
		succeed(t, dir, nil, append(command, "-o", "prog")...)
		return "prog"
	})
	programs.guests.Store(prog, guest{name, w, slices.ContainsFunc(options, func(o string) bool { return strings.HasPrefix(o, "-fsanitize") })})
	return prog
}

// object compiles testdata/guest/name.c.
func object(t *testing.T, name string, options []string) string {
	t.Helper()
	return once(t, fmt.Sprint("object", name, options), func(dir string) string {
		succeed(t, dir, nil, append(compiler(options), "-c", source(name+".c"), "-o", "prog.o")...)
		return "prog.o"
	})
}

// together writes a main that calls the renamed ones of the parts.
func together(t *testing.T, dir string, parts []string) string {
	t.Helper()
	var declared, called strings.Builder
	for _, part := range parts {
		parameters, arguments := "int, char **", "argc, argv"
		if strings.Contains(read(t, filepath.Dir(source(part)), part+".c"), "int main(void)") {
			parameters, arguments = "void", ""
		}
		fmt.Fprintf(&declared, "int %s(%s);\n", part, parameters)
		fmt.Fprintf(&called, "    status |= %s(%s);\n", part, arguments)
	}
	write(t, dir, "main.c", declared.String()+
		"int main(int argc, char **argv) {\n    int status = argc < 0 || argv == 0;\n"+called.String()+"    return status;\n}\n")
	return filepath.Join(dir, "main.c")
}

func compiler(options []string) []string {
	command := append([]string{"gcc"}, guestFlags()...)
	command = append(command, options...)
	return append(command, "-pthread", "-DWITH_EXT", "-I"+root, "-I"+filepath.Join(root, "capi"), "-I"+filepath.Join(root, "capi", "cache"))
}

// compileDropin compiles in a homework folder, with the file that `make dropin` puts there.
func compileDropin(t *testing.T, dir, name string, options []string) {
	t.Helper()
	homework(t, dir, name)
	r := runMake(t, "dropin", "DIR="+dir)
	require.Zero(t, r.status, r.stderr)
	line := append([]string{"gcc"}, guestFlags()...)
	line = append(line, options...)
	succeed(t, dir, nil, append(line, "llm_memory.c", "grader.c", "-o", "prog")...)
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

// The two command lines of the course, as they are.
func TestTheDropinCompilesWithTheCoursesLines(t *testing.T) {
	t.Parallel()
	need(t, "gcc")
	dir := t.TempDir()
	homework(t, dir, "scenario")
	require.Zero(t, runMake(t, "dropin", "DIR="+dir).status)
	line := append([]string{"gcc"}, strings.Fields(courseFlags)...)
	succeed(t, dir, nil, append(line, "-c", "llm_memory.c", "-o", "llm_memory.o")...)
	succeed(t, dir, nil, append(line, "llm_memory.c", "grader.c", "-o", "prog")...)
	succeed(t, dir, nil, filepath.Join(dir, "prog"))
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
