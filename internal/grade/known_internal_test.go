package grade

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/course/trace"
	"llmmemory/internal/grade/compare"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

// Ensure that the calls after which a call did not come back are not made again, and that the
// result is that of making them.
func TestACallThatDoesNotComeBackIsNotWaitedForAgain(t *testing.T) {
	level.SkipQuick(t)
	g, err := NewGrader()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	const first = "    if (initial_kv_len <= 0) {\n"
	text := corpus.Changed(t, first, "    for (volatile int i = 0; initial_kv_len == 33; i++) {\n    }\n"+first)
	program, err := g.kit.Build("llm_memory.c", []byte(text))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, program.Close()) })
	parse := func(text string) []trace.Op {
		ops, err := trace.Parse(text)
		require.NoError(t, err)
		return ops
	}
	const same = "init e0 640\ncreate e0 1 5\ncreate e0 2 33\n"
	again := newGrading(g, &Report{}, program, nil)
	_, err = again.play(parse(same))
	require.NoError(t, err)
	for _, c := range []struct {
		name, text string
		known      bool
	}{
		{"the same calls, and more", same + "append e0 1 1\n", true},
		{"others before it", "init e0 640\ncreate e0 2 33\n", false},
		{"longer to wait", same + "appends e0 1 1 100\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ops := parse(c.text)
			r, err := again.play(ops)
			require.NoError(t, err)
			require.Len(t, r.All, 1)
			require.Equal(t, c.known, r.All[0].Known)
			require.Equal(t, c.known, strings.Contains(r.All[0].Headline(), "it was not waited for again"))
			if !c.known {
				return
			}
			anew, err := newGrading(g, &Report{}, program, nil).play(ops)
			require.NoError(t, err)
			for _, r := range []*compare.Result{&r, &anew} { // but for the time that it took
				r.All[0].Known, r.All[0].Actual = false, ""
			}
			require.Equal(t, anew, r)
		})
	}
	require.Equal(t, 4, again.hangs[trace.Create])
}
