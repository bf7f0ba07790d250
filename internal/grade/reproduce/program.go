// Package reproduce writes a trace as a C program, which a student compiles with
// llm_memory.c and steps through in a debugger.
package reproduce

import (
	"fmt"
	"strings"

	"llmmemory/internal/course/trace"
	"llmmemory/internal/grade/compare"
)

// helpers are the writes from outside, in C; each is written only where used.
var helpers = []struct{ needs, text string }{
	{"find(", `
/* The sequence with that id, found as the handout finds it. */
static Sequence *find(LLMEngine *engine, int seq_id) {
    struct list_node *node = engine->active_seqs.next;
    for (; node != &engine->active_seqs; node = node->next) {
        Sequence *seq = (Sequence *)((char *)node - offsetof(Sequence, node));
        if (seq->seq_id == seq_id) {
            return seq;
        }
    }
    return NULL;
}
`},
	{"hole(", `
/* Unmaps a logical block, as a tester may between two calls. */
static void hole(LLMEngine *engine, int seq_id, int logical) {
    Sequence *seq = find(engine, seq_id);
    int *l2 = seq == NULL ? NULL : seq->block_table[logical / L2_PT_SIZE];
    if (l2 == NULL || l2[logical % L2_PT_SIZE] < 0) {
        return;
    }
    int block = l2[logical % L2_PT_SIZE];
    l2[logical % L2_PT_SIZE] = -1;
    if (--engine->ref_count[block] == 0) {
        engine->free_local_blocks++;
    }
}
`},
	{"move(", `
/* Two L2 tables change places. */
static void move(LLMEngine *engine, int seq_id, int a, int b) {
    Sequence *seq = find(engine, seq_id);
    if (seq != NULL) {
        int *l2 = seq->block_table[a];
        seq->block_table[a] = seq->block_table[b];
        seq->block_table[b] = l2;
    }
}
`},
	{"relocate(", `
/* A table goes to another address: 0 to 15 an L2 table, 16 the L1 table, 17 ref_count. */
static void *moved(void *old, size_t size) {
    void *fresh = old == NULL ? NULL : malloc(size);
    if (fresh != NULL) {
        memcpy(fresh, old, size);
        free(old);
    }
    return fresh;
}

static void relocate(LLMEngine *engine, int seq_id, int what) {
    Sequence *seq = find(engine, seq_id);
    if (seq == NULL) {
        return;
    }
    if (what < L1_PT_SIZE) {
        seq->block_table[what] = moved(seq->block_table[what], L2_PT_SIZE * sizeof(int));
    } else if (what == L1_PT_SIZE) {
        seq->block_table = moved(seq->block_table, L1_PT_SIZE * sizeof(int *));
    } else {
        engine->ref_count = moved(engine->ref_count, (size_t)engine->total_local_blocks * sizeof(int));
    }
}
`},
	{"rename_to(", `
static void rename_to(LLMEngine *engine, int seq_id, int other) {
    Sequence *seq = find(engine, seq_id);
    if (seq != NULL && find(engine, other) == NULL) {
        seq->seq_id = other;
    }
}
`},
	{"take_out(", `
/* Takes a sequence out of the list, and keeps it. */
static void take_out(LLMEngine *engine, int seq_id) {
    Sequence *seq = find(engine, seq_id);
    if (seq != NULL) {
        seq->node.prev->next = seq->node.next;
        seq->node.next->prev = seq->node.prev;
    }
}
`},
}

// Program returns the text. Its last call is the one that the difference is in.
func Program(name string, ops []trace.Op, d *compare.Difference) string {
	var body strings.Builder
	pools := map[int]int32{}
	for i, op := range ops[:d.Step+1] {
		if i == d.Step {
			fmt.Fprintf(&body, "\n    /* %s: expected %s, was %s. Set a breakpoint here. */\n", d.Field, d.Expected, d.Actual)
		}
		if op.Fail > 0 {
			fmt.Fprintf(&body, "    /* here the allocation number %d of the call fails */\n", op.Fail)
		}
		if op.Kind == trace.Init && op.Engine != trace.None && op.A >= 0 {
			pools[op.Engine] = max(pools[op.Engine], op.A)
		}
		fmt.Fprintf(&body, "    %s\n", Statement(op))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "/*\n * %s\n *   gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -O0 -ggdb llm_memory.c this.c -o this && gdb ./this\n */\n", name)
	b.WriteString("#include \"llm_memory.h\"\n\n#include <stddef.h>\n#include <stdlib.h>\n#include <string.h>\n\n")
	if strings.Contains(body.String(), "e[") {
		fmt.Fprintf(&b, "static LLMEngine *e[%d];\n", trace.Engines)
	}
	for engine := range trace.Engines {
		if size, used := pools[engine]; used {
			fmt.Fprintf(&b, "static int pool%d[%d];\n", engine, max(1, (size+3)/4))
		}
	}
	text := body.String()
	var used []string
	for i := len(helpers) - 1; i >= 0; i-- { // find, which the others need, is the first
		if h := helpers[i]; strings.Contains(text+strings.Join(used, ""), h.needs) {
			used = append([]string{h.text}, used...)
		}
	}
	b.WriteString(strings.Join(used, ""))
	b.WriteString("\nint main(void) {\n" + text + "    return 0;\n}\n")
	return b.String()
}

// Statement is one step in C. INT_MIN has no literal.
func Statement(op trace.Op) string {
	engine := fmt.Sprintf("e[%d]", op.Engine)
	if op.Engine == trace.None {
		engine = "NULL"
	}
	a, b, c := literal(op.A), literal(op.B), literal(op.C)
	switch op.Kind {
	case trace.Init:
		if op.A < 0 {
			return "llm_init(NULL, 640);"
		}
		return fmt.Sprintf("%s = llm_init(pool%d, %s);", engine, op.Engine, a)
	case trace.Create:
		return fmt.Sprintf("create_sequence(%s, %s, %s);", engine, a, b)
	case trace.Fork:
		return fmt.Sprintf("fork_sequence(%s, %s, %s);", engine, a, b)
	case trace.Forks:
		return fmt.Sprintf("for (int i = 0; i < %s; i++) { fork_sequence(%s, %s, %s + i); }", c, engine, a, b)
	case trace.Append:
		return fmt.Sprintf("append_kv(%s, %s, %s);", engine, a, b)
	case trace.Free:
		return fmt.Sprintf("free_sequence(%s, %s);", engine, a)
	case trace.Destroy:
		return fmt.Sprintf("llm_destroy(%s);", engine)
	case trace.Hole:
		return fmt.Sprintf("hole(%s, %s, %s);", engine, a, b)
	case trace.Move:
		return fmt.Sprintf("move(%s, %s, %s, %s);", engine, a, b, c)
	case trace.Relocate:
		return fmt.Sprintf("relocate(%s, %s, %s);", engine, a, b)
	case trace.Rename:
		return fmt.Sprintf("rename_to(%s, %s, %s);", engine, a, b)
	default:
		return fmt.Sprintf("take_out(%s, %s);", engine, a)
	}
}

func literal(n int32) string {
	if n == -1<<31 {
		return "-2147483647 - 1"
	}
	return fmt.Sprint(n)
}
