package compare_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/isolation/build"
	"llmmemory/internal/homework/grade/judging/compare"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

func memoryGroup(t *testing.T, limit string) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	require.NoError(t, err)
	mount, file, pattern := "/sys/fs/cgroup/memory", "memory.limit_in_bytes", `(?m)^\d+:memory:(.*)$`
	if _, err := os.Stat(mount); err != nil {
		mount, file, pattern = "/sys/fs/cgroup", "memory.max", `(?m)^0::(.*)$`
	}
	path := regexp.MustCompile(pattern).FindSubmatch(text)
	if path == nil {
		t.Skip("this system has no control group for memory")
	}
	dir, err := os.MkdirTemp(filepath.Join(mount, string(path[1])), "llmgrade-test-")
	if err != nil {
		t.Skip("no control group can be made here: ", err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) }) // by rmdir: its files are no files
	if err := os.WriteFile(filepath.Join(dir, file), []byte(limit), 0o644); err != nil {
		t.Skip("the group cannot be limited: ", err)
	}
	return dir
}

// Ensure that Play returns ErrMemory and no difference if the kernel kills a submission because the machine lacks
// memory for the ref_count of a 3 GiB pool. (With enough memory the submission gets its points: the row "engine and
// ref_count in one allocation" in package grade.)
func TestTooLittleMemoryIsTroubleAndNoFailure(t *testing.T) {
	ops, err := trace.Parse(fmt.Sprintf("init e0 127 %d\n", trace.MaxLarge))
	require.NoError(t, err)
	if program := os.Getenv("LLMGRADE_TEST_PROGRAM"); program != "" { // in the group
		_, err := compare.Play(program, ops)
		fmt.Println("trouble:", errors.Is(err, compare.ErrMemory))
		return
	}
	source := corpus.Changed(t, "    engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof *engine->ref_count);\n",
		"    engine->ref_count = malloc((size_t)engine->total_local_blocks * sizeof *engine->ref_count);\n"+
			"    for (int i = 0; engine->ref_count != NULL && i < engine->total_local_blocks; i++) {\n"+
			"        engine->ref_count[i] = 0;\n    }\n")
	level.SkipQuick(t)
	kit, err := build.NewKit()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, kit.Close()) })
	program, err := kit.Build("all", []byte(source))
	require.NoError(t, err)
	group := memoryGroup(t, "134217728")
	var out []byte
	// The kernel may kill the test's process instead of the submission's, so the test tries several times.
	for range 5 {
		cmd := exec.Command("/bin/sh", "-c", `echo $$ >"$0" && exec "$1" -test.run "$2" -test.v`, filepath.Join(group, "cgroup.procs"),
			os.Args[0], "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "LLMGRADE_TEST_PROGRAM="+program.Native())
		if out, err = cmd.CombinedOutput(); err == nil || err.Error() != "signal: killed" {
			break
		}
	}
	if err != nil && strings.Contains(string(out), "cgroup.procs") {
		t.Skip("no process can enter the group: ", string(out))
	}
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "trouble: true")
}
