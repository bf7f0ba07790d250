package grade_test

import (
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade"
	"llmmemory/internal/testkit/corpus"
)

func requireTouched(t *testing.T, m corpus.Mutant, r *grade.Report) {
	t.Helper()
	correct := corpus.Correct(t)
	source, err := m.Apply(correct)
	require.NoError(t, err)
	tasks := touched(correct, source)
	for _, test := range r.Tests {
		if test.Score < test.MaxScore {
			require.Contains(t, tasks, test.Task, "%s: %s is charged", m.ID, test.Name)
		}
	}
}

var (
	definition = regexp.MustCompile(`(?ms)^\w[^;\n]*?(\w+)\([^;{]*\) \{\n.*?^}\n`)
	called     = regexp.MustCompile(`\w+`)
)

func touched(before, after string) (tasks []int) {
	old, now := functionsOf(before), functionsOf(after)
	changed := map[string]bool{}
	for name, text := range now {
		changed[name] = old[name] != text
	}
	for more := true; more; {
		more = false
		for name, text := range now {
			if !changed[name] && slices.ContainsFunc(called.FindAllString(text, -1), func(word string) bool { return changed[word] }) {
				changed[name], more = true, true
			}
		}
	}
	for name := range now {
		if task := trace.TaskOf(name); task != 0 && changed[name] {
			tasks = append(tasks, task)
		}
	}
	return tasks
}

func functionsOf(source string) map[string]string {
	all := map[string]string{}
	for _, m := range definition.FindAllStringSubmatch(source, -1) {
		all[m[1]] = m[0]
	}
	return all
}

func TestWhatAChangeTouches(t *testing.T) {
	correct := corpus.Correct(t)
	require.Len(t, functionsOf(correct), 16)
	for name, c := range map[string]struct {
		source string
		tasks  []int
	}{
		"nothing":             {correct, nil},
		"a function":          {corpus.Changed(t, "    records[offset] = kv_data;\n", ""), []int{4}},
		"a helper":            {corpus.Changed(t, "    head->prev = &seq->node;\n", ""), []int{2, 3}},
		"a helper of another": {corpus.Changed(t, "        if (engine->ref_count[id] == 0) {\n            return id;\n", ""), []int{2, 4}},
	} {
		tasks := touched(correct, c.source)
		slices.Sort(tasks)
		require.Equal(t, c.tasks, slices.Compact(tasks), name)
	}
}
