package compare_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that a forbidden write is reported for the call that makes it, and for no later call. The forbidden writes go
// to the pool or to memory after the end of an allocation.
func TestAWriteIsChargedToTheCallThatMakesIt(t *testing.T) {
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
		name, ops, place, code string
		steps                  []int // that differ
	}{
		{"free_sequence", two + "free e0 1\n" + later, frees, once + writes + "    }\n", []int{4}},
		{"llm_destroy", two + "destroy e0\n" + later, ends, once + writes + "    }\n", []int{4}},
		{"llm_destroy that fails", two + "destroy e0\n" + later, ends, once + writes + "        return -1;\n    }\n", []int{4}},
		{"llm_destroy of a large pool", "init e0 64 3072\ninit e1 640\ncreate e0 1 1\ncreate e1 1 1\ndestroy e0\n" + later, ends, once + writes + "    }\n", []int{4}},
		{"llm_init that fails", "init e0 640\ninit e1 640\ncreate e1 1 1\n" + later, inits, once + "    *(char *)pool_addr ^= 1;\n        return NULL;\n    }\n", []int{0}},
		{"fork_sequence, behind many allocations", "init e0 640\ncreate e0 1 1\nforks e0 1 2 20\nfree e0 2\nappend e0 3 1\n", "    link_tail(engine, child);\n",
			"    ((volatile char *)child)[sizeof *child] = 0;\n", []int{2}},
		{"append_kv, behind an old allocation", "init e0 640\ncreate e0 1 1\nforks e0 1 2 800\nappend e0 1 1\nappend e0 1 2\ndestroy e0\n", "    records[offset] = kv_data;\n",
			"    ((volatile char *)seq)[sizeof *seq] = 0;\n", []int{3, 4}},
		{"a refused llm_init beside an engine", "init e0 640\ncreate e0 1 1\ninit e0 63\nappend e0 1 7\ndestroy e0\ninit e0 63\ninit e1 640\n", inits, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, r := played(t, c.ops, c.place, c.code+c.place)
			var steps []int
			for _, d := range r.All {
				steps = append(steps, d.Step)
			}
			require.Equal(t, c.steps, steps, "%v", r.All)
		})
	}
}
