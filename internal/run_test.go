package internal_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A fakeMachine is a folder with scripts that replace the programs date and make. The script for date prints a simulated
// time. The script for make records each target, and moves the simulated time forward.
type fakeMachine struct{ root, made string }

// newFakeMachine returns a machine on which make takes the given number of seconds for each target. A target
// that is not in the map fails.
func newFakeMachine(t *testing.T, seconds map[string]int) fakeMachine {
	t.Helper()
	root := t.TempDir()
	m := fakeMachine{root, filepath.Join(root, "made")}
	script := func(name, text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte("#!/bin/sh\n"+text), 0o755))
	}
	require.NoError(t, os.Mkdir(filepath.Join(root, ".ci"), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(root, "bin"), 0o755))
	for _, name := range []string{"run", "home"} {
		text, err := os.ReadFile("../.ci/" + name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(root, ".ci", name), text, 0o755))
	}
	clock := filepath.Join(root, "clock")
	require.NoError(t, os.WriteFile(clock, []byte("1000\n"), 0o644))
	script(".ci/tools", "echo \"tools $*\" >>'"+m.made+"'\necho $(($(cat '"+clock+"') + 5000)) >'"+clock+"'\n")
	script("bin/date", "cat '"+clock+"'\n")
	var cases strings.Builder
	for target, takes := range seconds {
		cases.WriteString(target + ") takes=" + strconv.Itoa(takes) + " ;;\n")
	}
	script("bin/make", "echo \"$*\" >>'"+m.made+"'\ncase $1 in\n"+cases.String()+`*) echo "FAIL $1"; exit 2 ;;
esac
echo $(($(cat '`+clock+`') + takes)) >'`+clock+`'
case $1 in test*)
    echo "DONE 1 tests that another run printed"
    echo "ok a package"
    echo "DONE 4321 tests in $takes.000s"
    echo "processor time: 1 s"
esac
`)
	return m
}

// run runs .ci/run on the machine. It returns the targets that were made, the output, and the exit status.
func (m fakeMachine) run(t *testing.T, arguments ...string) (made []string, printed string, status int) {
	t.Helper()
	cmd := exec.Command(filepath.Join(m.root, ".ci/run"), arguments...)
	cmd.Env = []string{"PATH=" + filepath.Join(m.root, "bin") + ":" + os.Getenv("PATH"), "HOME=" + m.root, "TMPDIR=" + m.root}
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil {
		require.ErrorAs(t, err, &exit)
	}
	text, err := os.ReadFile(m.made)
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(text)), "\n"), string(out), cmd.ProcessState.ExitCode()
}

// Ensure that CI always runs make test, runs the other checks while time is left, prints which checks it leaves out, and
// ends with the last lines of the tests.
func TestCILeavesOutWhatThereIsNoTimeFor(t *testing.T) {
	fast := map[string]int{"test": 250, "test-long": 1200, "check": 200, "race": 150, "invariants": 90}
	all := []string{"test", "test-long", "check", "race", "invariants"}
	for _, c := range []struct {
		name      string
		seconds   map[string]int
		arguments []string
		made      []string
		leftOut   []string
		status    int
	}{
		{"a fast machine", fast, nil, all, nil, 0},
		{"one on which the long tests take longer", map[string]int{"test": 300, "test-long": 2000, "check": 260, "invariants": 1},
			nil, []string{"test", "test-long", "check", "invariants"}, []string{"race"}, 0},
		{"a slow machine", map[string]int{"test": 800, "check": 600, "race": 500, "invariants": 200},
			nil, []string{"test", "check", "race", "invariants"}, []string{"test-long"}, 0},
		{"a very slow machine", map[string]int{"test": 2700}, nil, []string{"test"}, all[1:], 0},
		{"the same with more time", map[string]int{"test": 700, "test-long": 2700, "check": 700, "race": 500, "invariants": 400},
			[]string{"5400"}, all, nil, 0},
		{"a test that fails", map[string]int{"test-long": 1}, nil, []string{"test"}, nil, 2},
		{"a long test that fails", map[string]int{"test": 1, "check": 1}, nil, []string{"test", "test-long"}, nil, 2},
		{"a check that fails", map[string]int{"test": 1, "test-long": 1}, nil, []string{"test", "test-long", "check"}, nil, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			made, printed, status := newFakeMachine(t, c.seconds).run(t, c.arguments...)
			require.Equal(t, append([]string{"tools test"}, c.made...), made, printed)
			require.Equal(t, c.status, status, printed)
			require.Equal(t, len(c.leftOut), strings.Count(printed, "is left out"), printed)
			for _, target := range c.leftOut {
				require.Contains(t, printed, "make "+target+" is left out")
			}
			if c.status != 0 {
				require.True(t, strings.HasSuffix(printed, "FAIL "+c.made[len(c.made)-1]+"\n"), printed)
				return
			}
			end := ""
			for _, target := range []string{"test-long", "test"} {
				if slices.Contains(c.made, target) {
					end += fmt.Sprintf("== the end of make %s, which passed\nDONE 4321 tests in %d.000s\nprocessor time: 1 s\n", target, c.seconds[target])
				}
			}
			require.True(t, strings.HasSuffix(printed, "\n"+end), printed)
		})
	}
}
