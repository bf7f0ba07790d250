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

// guestFlags returns the compiler flags of the guests. Optimisation and full debug info take longer to compile than the
// guests take to run, and most guests behave the same without them. So only make exhaustive, and the tests that repeat
// the handout's own command lines, use optimisation and full debug info.
func guestFlags() []string {
	return append(strings.Fields(courseFlags), level.Pick([]string{"-O0", "-g1"}, nil)...)
}

// companies lists groups of test programs. The programs of a group are linked into one executable, because linking the
// libraries takes most of the time. The executable runs the program named by argv[0]. A program is in no group if it
// would change the others: it replaces malloc, or has a constructor or destructor. A program is in no group either if
// it tests the linking or is used in only one test.
var companies = [][]string{
	{"blocked", "by_hand", "contradictory", "cut_out", "faults", "forking", "grader", "interrupted", "leak", "limited", "main_leaves", "many",
		"rearranged", "scenario", "second", "threads", "timeouts"},
	{example, filepath.Join("..", "examples", "attention"), cudaExample, filepath.Join("..", "examples", "images"), offload, "attention_blocks",
		"attention_errors", "cache_calls", "cache_errors", "cache_flat", "cache_flight", "cache_growth", "cache_hostile", "cache_items", "cache_memory",
		"cache_threads", "cache_traffic", "cache_transfer", "cache_unwritten", "cuda_errors"},
}

// sanitizedCompanies lists the groups to compile with sanitizers. Compiling with sanitizers takes longer. So in make
// test, the second group contains only those programs that make test runs with sanitizers.
var sanitizedCompanies = [][]string{
	{"leak", "many", "overflow", "scenario"},
	level.Pick([]string{filepath.Join("..", "examples", "attention"), offload, "attention_blocks"}, companies[1]),
}

// company returns all programs that the executable for name contains. name is a list of programs separated by "+". The
// executable contains all programs of the group to which the first of them belongs. With plainC, or if the first
// program belongs to no group, it contains only the programs in name.
func (w way) company(name string, sanitized bool) []string {
	all := companies
	if sanitized {
		all = sanitizedCompanies
	}
	parts := strings.Split(name, "+")
	for _, c := range all {
		if w != plainC && slices.Contains(c, parts[0]) {
			return c
		}
	}
	return parts
}

// A way is how a C program is linked with the library.
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

// someWays returns the ways of linking with which a test runs its program. In make exhaustive, it returns all ways. In
// make test-long, it returns two. One is shared: the program loads the library at its start. The other is archive: the
// library is linked into the program.
func someWays() []way { return level.Pick(linked, everyWay) }

// checked reports whether a program that is linked in the way w also runs under Valgrind. Such a run takes long. So in
// make test-long, only the program linked in the way checkedWay does. In make exhaustive, the programs linked in all ways do.
func (w way) checked(checkedWay way) bool { return w == checkedWay || level.Exhaustive() }

func source(name string) string { return filepath.Join(root, "testdata", "guest", name) }

func library(name string) string { return filepath.Join(root, "build", name) }

type guest struct {
	name      string
	way       way
	sanitized bool
}

// programs has the files that buildOnce has built, by key. The files are in a folder that TestMain removes.
var programs struct {
	dir    string
	all    sync.Map
	guests sync.Map // the guest of each path
}

// A program is an executable or an object file. The first test that needs it builds it.
type program struct {
	sync.Once
	path string
}

// buildOnce returns the path of the file that build has built for key. The first call with a key calls build with a new
// folder. Later calls with the key return the same path.
func buildOnce(t *testing.T, key string, build func(dir string) (name string)) string {
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

// compile builds an executable from testdata/guest/name.c and libllm_memory, and returns its path. The options come
// first in the compiler's command line.
func (w way) compile(t *testing.T, name string, options ...string) string {
	t.Helper()
	return w.link(t, name, options, map[way][]string{
		shared:  {"-L" + library(""), "-lllm_memory", "-Wl,-rpath," + library("")},
		archive: {library("libllm_memory.a")},
		plainC:  {filepath.Join(root, "testdata", "submissions", "correct", "llm_memory.c")},
	})
}

// link builds an executable, which may contain several programs. It returns the path of a symbolic link to the
// executable. A command with this path runs the named program. For a name such as "a+b", it runs two programs one after
// the other.
func (w way) link(t *testing.T, name string, options []string, libraries map[way][]string) string {
	t.Helper()
	need(t, "gcc")
	sanitized := slices.ContainsFunc(options, func(o string) bool { return strings.HasPrefix(o, "-fsanitize") })
	members := w.company(name, sanitized)
	linked := buildOnce(t, fmt.Sprint(w, members, options, libraries[w]), func(dir string) string {
		command := compiler(options)
		if len(members) == 1 {
			command = append(command, w.object(t, name, slices.Clone(options)))
		} else {
			command = append(command, dispatcher(t, dir, members))
			for _, member := range members {
				command = append(command, w.object(t, member, append(slices.Clone(options), "-Dmain="+filepath.Base(member)+"_main")))
			}
		}
		switch w {
		case dropin:
			command = append(command, dropinObject(t))
		case loaded:
			command = append(command, w.object(t, "loader", append(slices.Clone(options), `-DLIBRARY="`+library("libllm_memory.so")+`"`)))
		default:
			command = append(command, libraries[w]...)
		}
		succeed(t, dir, nil, append(command, "-o", "prog")...)
		return "prog"
	})
	prog := buildOnce(t, fmt.Sprint(linked, name), func(dir string) string {
		called := strings.ReplaceAll(name, filepath.Dir(example)+"/", "")
		require.NoError(t, os.Symlink(linked, filepath.Join(dir, called)))
		return called
	})
	programs.guests.Store(prog, guest{name, w, sanitized})
	return prog
}

// object compiles testdata/guest/name.c. w says how the program will be linked with the library. The compiler's options
// depend on w only if the source contains WITH_EXT or LOADED. Otherwise the source is compiled only once for all ways
// with the same options.
func (w way) object(t *testing.T, name string, options []string) string {
	t.Helper()
	text := read(t, filepath.Dir(source(name)), filepath.Base(name)+".c")
	if w != dropin || !strings.Contains(text, "WITH_EXT") {
		options = append(options, "-DWITH_EXT")
	}
	if w == loaded && strings.Contains(text, "LOADED") {
		options = append(options, "-DLOADED")
	}
	return buildOnce(t, fmt.Sprint("object", name, options), func(dir string) string {
		succeed(t, dir, nil, append(compiler(options), "-c", source(name+".c"), "-o", "prog.o")...)
		return "prog.o"
	})
}

func dropinObject(t *testing.T) string {
	t.Helper()
	return buildOnce(t, "drop-in", func(dir string) string {
		homework(t, dir, "scenario")
		r := runMake(t, "dropin", "DIR="+dir)
		require.Zero(t, r.status, r.stderr)
		line := append([]string{"gcc"}, guestFlags()...)
		succeed(t, dir, nil, append(line, "-c", "llm_memory.c", "-o", "llm_memory.o")...)
		return "llm_memory.o"
	})
}

// dispatcher writes a C file with the main function of an executable that contains several programs. This main function
// reads in argv[0] which of them to run: if the executable is called as "a+b", it runs program a and then program b.
// The main functions of these programs are compiled with the names a_main and b_main.
func dispatcher(t *testing.T, dir string, members []string) string {
	t.Helper()
	var declared, called strings.Builder
	for _, member := range members {
		name, parameters, arguments := filepath.Base(member), "int, char **", "argc, argv"
		if strings.Contains(read(t, filepath.Dir(source(member)), name+".c"), "int main(void)") {
			parameters, arguments = "void", ""
		}
		fmt.Fprintf(&declared, "int %s_main(%s);\n", name, parameters)
		fmt.Fprintf(&called, "is(name, %q) ? %s_main(%s)\n                : ", name, name, arguments)
	}
	write(t, dir, "main.c", "#include <string.h>\n"+declared.String()+`
static int is(const char *called, const char *name) {
    return strcspn(called, "+") == strlen(name) && strncmp(called, name, strlen(name)) == 0;
}

int main(int argc, char **argv) {
    int status = argc < 0;
    const char *slash = strrchr(argv[0], '/');
    for (const char *name = slash == NULL ? argv[0] : slash + 1; name != NULL; name = strchr(name, '+')) {
        name += *name == '+';
        status |= `+called.String()+"127;\n    }\n    return status;\n}\n")
	return filepath.Join(dir, "main.c")
}

func compiler(options []string) []string {
	command := append([]string{"gcc"}, guestFlags()...)
	command = append(command, options...)
	return append(command, "-pthread", "-I"+root, "-I"+filepath.Join(root, "capi"), "-I"+filepath.Join(root, "capi", "cache"))
}

func homework(t *testing.T, dir, name string) {
	t.Helper()
	copyFile(t, filepath.Join(root, "llm_memory.h"), filepath.Join(dir, "llm_memory.h"))
	copyFile(t, source("check.h"), filepath.Join(dir, "check.h"))
	copyFile(t, source(name+".c"), filepath.Join(dir, "grader.c"))
}

func copyFile(t *testing.T, src, dst string) {
	t.Helper()
	content, err := os.ReadFile(src)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(dst, content, 0o644))
}

// each tests programs that are linked in some ways, in make test in the first of them.
func each(t *testing.T, ways []way, test func(t *testing.T, w way)) {
	for _, w := range level.First(min(1, len(ways)), ways) {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			test(t, w)
		})
	}
}

func TestTheSameProgramLinkedInAnyWayLeavesTheSameMemory(t *testing.T) {
	for _, w := range everyWay {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			prog := w.compile(t, "scenario")
			r := succeed(t, t.TempDir(), nil, prog)
			require.Equal(t, "scenario: as expected\n", r.stdout)
			require.Empty(t, r.stderr)
		})
	}
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
