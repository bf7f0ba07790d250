package guest_test

import (
	"slices"
	"testing"

	"llmmemory/internal/testkit/level"
)

// Ensure that if a grader forks a child for each test, no child hangs or crashes, whatever the parent has done before.
// The test is not parallel, because its cases "on a busy machine" occupy the processors. Only make exhaustive runs these
// cases.
func TestNoChildOfAGraderThatForksPerTestHangsOrCrashes(t *testing.T) {
	level.SkipNormal(t)
	cases := []struct {
		name string
		way  way
		args []string
	}{
		{"after the parent has called", shared, []string{"called", level.Pick("60", "2000")}},
		{"after the parent has called, archive", archive, []string{"called", level.Pick("60", "500")}},
		{"after the parent has called, drop-in", dropin, []string{"called", level.Pick("60", "500")}},
		{"while the parent calls between", shared, []string{"between", level.Pick("60", "2000")}},
		{"at once after load, linked", shared, []string{"newborn", level.Pick("60", "2000")}},
		{"at once after load, archive", archive, []string{"newborn", level.Pick("60", "500")}},
		{"at once after dlopen", loaded, []string{"newborn", level.Pick("60", "2000")}},
		{"with 200 live sequences in the parent", shared, []string{"live", level.Pick("60", "2000")}},
		{"and again in the children", shared, []string{"again", level.Pick("60", "500")}},
		{"after the parent has called, on a busy machine", shared, []string{"called", "300", "busy"}},
		{"at once after load, on a busy machine", shared, []string{"newborn", "300", "busy"}},
		{"at once after dlopen, on a busy machine", loaded, []string{"newborn", "300", "busy"}},
		{"with 200 live sequences, on a busy machine", shared, []string{"live", "300", "busy"}},
	}
	programs := map[way]string{}
	for _, w := range everyWay {
		programs[w] = w.compile(t, "grader")
	}
	for _, c := range cases {
		if slices.Contains(c.args, "busy") && !level.Exhaustive() {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			succeed(t, t.TempDir(), nil, append([]string{programs[c.way]}, c.args...)...)
		})
	}
}
