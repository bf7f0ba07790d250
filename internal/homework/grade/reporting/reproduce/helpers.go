package reproduce

import (
	"regexp"
	"slices"
	"strings"

	"llmmemory/grader"
)

// A helper is a C function for programs, with the comment in front of it.
type helper struct{ name, text string }

// own has the helpers that grader.Tester does not have.
const own = `
/* 1 where the list has these ids in this order, both ways. */
static int list_is(LLMEngine *engine, const int *ids, int n) {
    struct list_node *node = &engine->active_seqs;
    for (int i = 0; i < n; i++) {
        if (node->next == NULL || node->next->prev != node || node->next == &engine->active_seqs) {
            return 0;
        }
        node = node->next;
        if (((Sequence *)(void *)((char *)node - offsetof(Sequence, node)))->seq_id != ids[i]) {
            return 0;
        }
    }
    return node->next == &engine->active_seqs && engine->active_seqs.prev == node;
}

/* Each of the first n counts, as it has to be after a step. */
static void expect_counts(int step, LLMEngine *engine, const int *counts, int n) {
    for (int i = 0; i < n; i++) {
        if (engine->ref_count[i] != counts[i]) {
            printf("step %d: engine->ref_count[%d] is %d, expected %d\n", step, i, engine->ref_count[i], counts[i]);
            wrong = 1;
        }
    }
}

/* A number as a report says it: memory is filled where malloc returns it, and where it is freed. */
static const char *shown(int value, char *number) {
    if ((unsigned)value == 0xa5a5a5a5 || (unsigned)value == 0xdddddddd) {
        return (unsigned)value == 0xa5a5a5a5 ? "never written" : "freed memory";
    }
    sprintf(number, "%d", value);
    return number;
}

/* Bytes of which no two blocks have the same. */
static void fill(void *pool, size_t size) {
    for (size_t i = 0; i < size; i++) {
        ((unsigned char *)pool)[i] = (unsigned char)(0xc3 + i * 11 + i / BLOCK_SIZE * 29);
    }
}
`

var declared = regexp.MustCompile(`(?m)^static [^;(]*?(\w+)\(`)

// all lists the helpers; each comes after those that it calls.
var all = split(string(grader.Tester) + own + heapHelpers)

func split(text string) []helper {
	var found []helper
	for _, part := range strings.Split(text, "\n/* ")[1:] {
		part = "\n/* " + strings.TrimRight(part, "\n") + "\n"
		if m := declared.FindStringSubmatch(part); m != nil {
			found = append(found, helper{m[1], part})
		}
	}
	return found
}

// helpers returns the helpers that a text calls, with those that they call.
func helpers(body string) string {
	text, used := body, []string{}
	for _, h := range slices.Backward(all) {
		if strings.Contains(text, h.name+"(") {
			used = append(used, h.text)
			text += h.text
		}
	}
	slices.Reverse(used)
	return strings.Join(used, "")
}
