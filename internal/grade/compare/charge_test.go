package compare_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/course/trace"
	"llmmemory/internal/grade/build"
	"llmmemory/internal/grade/compare"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

// A write to a pool is charged to the call that makes it, and to no later one, whatever became of the engine.
func TestAWriteToAPoolIsChargedToTheCallThatMakesIt(t *testing.T) {
	level.SkipQuick(t)
	kit, err := build.NewKit()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, kit.Close()) })
	const (
		two    = "init e0 640\ninit e1 640\ncreate e0 1 1\ncreate e1 1 1\n"
		later  = "append e1 1 7\nfork e1 1 2\nfree e1 1\ndestroy e1\n"
		writes = "    ((char *)engine->pool_base_ptr)[3] ^= 1;\n"
		once   = "    static int calls;\n    if (calls++ == 0) {\n    "
		frees  = "    unlink_node(seq);\n"
		ends   = "    struct list_node *node = engine->active_seqs.next;\n    while"
		inits  = "    if (pool_addr == NULL ||"
	)
	for _, c := range []struct {
		name, ops, place, more string
		steps                  []int // that differ
	}{
		{"free_sequence", two + "free e0 1\n" + later, frees, once + writes + "    }\n", []int{4}},
		{"llm_destroy", two + "destroy e0\n" + later, ends, once + writes + "    }\n", []int{4}},
		{"llm_destroy that fails", two + "destroy e0\n" + later, ends, once + writes + "        return -1;\n    }\n", []int{4}},
		{"llm_destroy of a large pool", "init e0 64 3072\ninit e1 640\ncreate e0 1 1\ncreate e1 1 1\ndestroy e0\n" + later, ends, once + writes + "    }\n", []int{4}},
		{"llm_init that fails", "init e0 640\ninit e1 640\ncreate e1 1 1\n" + later, inits, once + "    *(char *)pool_addr ^= 1;\n        return NULL;\n    }\n", []int{0}},
		{"a refused llm_init beside an engine", "init e0 640\ncreate e0 1 1\ninit e0 63\nappend e0 1 7\ndestroy e0\ninit e0 63\ninit e1 640\n", inits, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			program, err := kit.Build("a test's", []byte(corpus.Changed(t, c.place, c.more+c.place)))
			require.NoError(t, err)
			ops, err := trace.Parse(c.ops)
			require.NoError(t, err)
			r, err := compare.Play(program.Native(), ops)
			require.NoError(t, err)
			var steps []int
			for _, d := range r.All {
				steps = append(steps, d.Step)
			}
			require.Equal(t, c.steps, steps, "%v", r.All)
		})
	}
}
