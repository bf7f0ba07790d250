package grade

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/isolation/build"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

// The last call of a trace did not return. Ensure that the grader does not play another trace that begins with the
// same calls.
func TestACallThatDoesNotComeBackIsNotWaitedForAgain(t *testing.T) {
	level.SkipQuick(t)
	g, err := NewGrader()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	const place = "    if (initial_kv_len <= 0) {\n"
	program := func(text string) *build.Program {
		program, err := g.kit.Build("llm_memory.c", []byte(text))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, program.Close()) })
		return program
	}
	parse := func(text string) []trace.Op {
		ops, err := trace.Parse(text)
		require.NoError(t, err)
		return ops
	}
	const same = "init e0 640\ncreate e0 1 5\ncreate e0 2 33\n"
	loops := program(corpus.Changed(t, place, "    for (volatile int i = 0; initial_kv_len == 33; i++) {\n    }\n"+place))
	grading := newGrading(g, &Report{}, loops, nil)
	first, err := grading.play(parse(same))
	require.NoError(t, err)
	grading.program = program(corpus.Correct(t)) // now a call that is made comes back
	for _, c := range []struct {
		name, text string
		known      bool
	}{
		{"the same calls, and more", same + "append e0 1 1\n", true},
		{"others before it", "init e0 640\ncreate e0 1 6\ncreate e0 2 33\n", false},
		{"longer to wait", same + "appends e0 1 1 100\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := grading.play(parse(c.text))
			require.NoError(t, err)
			if !c.known {
				require.Empty(t, r.All)
				return
			}
			require.Contains(t, r.All[0].Headline(), "it was not waited for again")
			r.All[0].Known = false
			require.Equal(t, first, r)
		})
	}
	require.Equal(t, 2, grading.hangs[trace.Create])
}
