package grade_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/grade/isolation/build"
	"llmmemory/internal/testkit/level"
)

// differs lists the files that llmgrade and the C suite (grader/suite) judge differently. cmd/llmgrade/README.md says
// why.
var differs = []string{"s1_56_append_int_overflow_2gib.c", "s1_63_create_int_max_overflow.c", "s2_21_init_pool_size_as_int.c", "s2_46_cow_copy_int_overflow.c"}

// cSuite compiles the C suite. all has all object files. watched has those that are linked for Memcheck, all except
// heap.o.
func cSuite(t *testing.T) (all, watched []string) {
	t.Helper()
	sources, err := filepath.Glob("../../../grader/suite/*.c")
	require.NoError(t, err)
	dir := t.TempDir()
	for _, source := range sources {
		object := filepath.Join(dir, strings.TrimSuffix(filepath.Base(source), ".c")+".o")
		compile(t, "-O2", "-c", source, "-o", object)
		all = append(all, object)
		if filepath.Base(source) != "heap.c" {
			watched = append(watched, object)
		}
	}
	return all, watched
}

func compile(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command("gcc", append(append(strings.Fields(build.CourseFlags), "-I../../.."), args...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func accepts(t *testing.T, file string, all, watched []string) bool {
	t.Helper()
	dir := t.TempDir()
	object, program := filepath.Join(dir, "submission.o"), filepath.Join(dir, "suite")
	compile(t, "-c", file, "-o", object)
	link := func(objects []string) bool { // a file without one of the six does not link
		return exec.Command("gcc", append([]string{object, "-o", program}, objects...)...).Run() == nil
	}
	if !link(all) || exec.Command(program, "--stop").Run() != nil || !link(watched) {
		return false
	}
	return exec.Command("valgrind", "-q", "--leak-check=full", "--show-leak-kinds=all", "--errors-for-leak-kinds=all",
		"--error-exitcode=99", program, "--no-fork").Run() == nil
}

// Ensure that llmgrade and the C suite accept and reject the same submissions of testdata/submissions/independent,
// except those in differs. The authors of these submissions knew only the handout.
func TestTheCSuiteAgrees(t *testing.T) {
	if !level.Exhaustive() {
		t.Skip("only in make exhaustive: each is tested with the mutants in every run")
	}
	all, watched := cSuite(t)
	files, err := filepath.Glob(submissions + "independent/*/*.c")
	require.NoError(t, err)
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			full := filepath.Base(filepath.Dir(file)) == "right" || slices.Contains(missed, name) // submissionsWrittenFromTheHandoutAlone checks that
			require.Equal(t, full != slices.Contains(differs, name), accepts(t, file, all, watched))
		})
	}
}
