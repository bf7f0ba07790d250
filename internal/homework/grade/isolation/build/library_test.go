package build_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/grade/isolation/build"
	"llmmemory/internal/testkit/corpus"
)

// buildID returns the build id of a library, by which Valgrind finds the library's debug information.
func buildID(t *testing.T, library string) []byte {
	t.Helper()
	file, err := elf.Open(library)
	require.NoError(t, err)
	defer file.Close()
	note := file.Section(".note.gnu.build-id")
	if note == nil {
		t.Skip(library, " has no build id")
	}
	id, err := note.Data()
	require.NoError(t, err)
	return id
}

func loads(t *testing.T, program string) string {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "LD_TRACE_LOADED_OBJECTS=1")
	out, err := cmd.Output()
	require.NoError(t, err)
	m := regexp.MustCompile(`libc\.so\.6 => (\S+)`).FindSubmatch(out)
	require.NotNil(t, m, "%s", out)
	return string(m[1])
}

// Ensure that Memcheck finds no debug information of the C library. Reading it makes Memcheck slower.
func TestMemcheckFindsNoDebugInformationOfTheLibrary(t *testing.T) {
	k := build.SharedKit(t)
	p, err := k.Build("llm_memory.c", []byte(corpus.Correct(t)))
	require.NoError(t, err)
	watched, err := k.Watched(p)
	require.NoError(t, err)
	library := loads(t, watched)
	require.Equal(t, filepath.Dir(filepath.Dir(watched)), filepath.Dir(library))
	system := loads(t, "/bin/true")
	require.NotEqual(t, buildID(t, system), buildID(t, library))
	whole, err := os.Stat(system)
	require.NoError(t, err)
	copied, err := os.Stat(library)
	require.NoError(t, err)
	require.Equal(t, whole.Size(), copied.Size())
}
