package guest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

func TestAStudentCanDebugAProgramThatUsesTheLibrary(t *testing.T) {
	level.SkipNormal(t)
	need(t, "gdb")
	each(t, everyWay, func(t *testing.T, w way) {
		prog := w.compile(t, "inspected", "-O0", "-ggdb2")
		command := []string{"gdb", "-nx", "-batch"}
		for _, line := range []string{
			"set debuginfod enabled off", "set breakpoint pending on",
			"break main", "run", // then over the lines of main, a call in each
			"next", "next", "next", "next", "next", "next",
			"print *engine", "print engine->ref_count[3]", "print seq->block_table[0][0]", "print seq->kv_count",
			"continue",
		} {
			command = append(command, "-ex", line)
		}
		r := run(t, t.TempDir(), nil, append(command, prog)...)
		for _, shown := range []string{
			"total_local_blocks = 8", "free_local_blocks = 4", "active_seqs = {prev = 0x",
			"$2 = 1", "$3 = 2", "$4 = 21", "inspected: done",
		} {
			require.Truef(t, strings.Contains(r.stdout, shown), "no %q in\n%s%s", shown, r.stdout, r.stderr)
		}
		// gdb sometimes tries to read the threads of a program that has already ended.
		ended := strings.Contains(r.stdout, "exited normally") || strings.Contains(r.stderr, "No such process")
		require.Truef(t, ended, "it does not end well:\n%s%s", r.stdout, r.stderr)
		require.Falsef(t, strings.Contains(r.stdout, "received signal"), "it stopped:\n%s", r.stdout)
	})
}
