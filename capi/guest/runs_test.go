package guest_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

var update = flag.Bool("update", false, "write down anew what is run")

var runs struct {
	sync.Mutex
	count   map[string]int
	skipped bool // a tool is not installed
}

func note(command []string) {
	for i, word := range command {
		known, ok := programs.guests.Load(word)
		if !ok {
			continue
		}
		g, tool := known.(guest), "-"
		switch {
		case g.sanitized:
			tool = "sanitizers"
		case i > 0:
			tool = strings.TrimPrefix(command[0], root+"/")
		}
		runs.Lock()
		defer runs.Unlock()
		if runs.count == nil {
			runs.count = map[string]int{}
		}
		runs.count[fmt.Sprintf("%-22s %-8s %s", filepath.Base(g.name), g.way, tool)]++
		return
	}
}

// golden is where all runs of make test-long are written down.
var golden = filepath.Join("testdata", "runs.golden")

// compareRuns compares the list of all programs that the tests have run with runs.golden, so that a missing program is
// noticed. The list says how each program was linked with the library, and under which tool it ran. With -update,
// compareRuns writes the list to runs.golden instead. It does nothing if only some tests ran, if a tool is not
// installed, or if the tests ran several times (-count). It also does nothing in make test, which runs less, and in make
// exhaustive, which runs more.
func compareRuns() error {
	for _, name := range []string{"run", "skip", "fuzz", "list"} {
		if flag.Lookup("test."+name).Value.String() != "" {
			return nil
		}
	}
	if !level.Long() || level.Exhaustive() || runs.skipped || flag.Lookup("test.count").Value.String() != "1" {
		return nil
	}
	var table strings.Builder
	for _, run := range slices.Sorted(maps.Keys(runs.count)) {
		fmt.Fprintf(&table, "%3d  %s\n", runs.count[run], run)
	}
	if *update {
		return os.WriteFile(golden, []byte(table.String()), 0o644)
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		return err
	}
	ran, wanted := strings.Split(table.String(), "\n"), strings.Split(string(want), "\n")
	for _, line := range wanted {
		if !slices.Contains(ran, line) {
			err = errors.Join(err, fmt.Errorf("not run: %s", line))
		}
	}
	for _, line := range ran {
		if !slices.Contains(wanted, line) {
			err = errors.Join(err, fmt.Errorf("run, but not in %s: %s", golden, line))
		}
	}
	return err
}

// Ensure that runs.golden lists every test program except unusable, which another test runs. For each way of linking it
// must list a program under Valgrind. For the ways shared and archive it must also list a program with sanitizers.
func TestEveryProgramAndEveryWayIsRun(t *testing.T) {
	if *update {
		t.Skip("they are being written down")
	}
	content, err := os.ReadFile(golden)
	require.NoError(t, err)
	run := map[string]bool{}
	for line := range strings.Lines(string(content)) {
		name, rest, _ := strings.Cut(strings.TrimSpace(strings.TrimLeft(line, " 0123456789")), " ")
		for part := range strings.SplitSeq(name, "+") {
			run[part] = true
		}
		run[strings.TrimSpace(rest)] = true
	}
	sources, err := filepath.Glob(source("*.c"))
	require.NoError(t, err)
	require.NotEmpty(t, sources)
	for _, name := range sources {
		switch name := strings.TrimSuffix(filepath.Base(name), ".c"); name {
		case "loader": // part of every program that calls dlopen
		case "unusable": // by TestWithoutTheLibraryTheDropinSaysWhereItLookedAndEveryCallFails
		default:
			require.True(t, run[name], "%s is not run", name)
		}
	}
	for _, w := range everyWay {
		valgrind := fmt.Sprintf("%-8s valgrind", w)
		require.True(t, run[valgrind] || run[valgrind+"/run"], "%s is not run under Valgrind", w)
	}
	for _, w := range linked {
		require.True(t, run[fmt.Sprintf("%-8s sanitizers", w)], "%s is not run with sanitizers", w)
	}
}
