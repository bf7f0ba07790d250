package reproduce

import (
	"fmt"
	"slices"
	"strings"

	"llmmemory/internal/homework/course"
	"llmmemory/internal/homework/course/oracle"
	"llmmemory/internal/homework/course/trace"
)

const maxChecked = 60 // steps of a program

// checks returns a C program that makes the calls of a trace. After each call it checks the returned value and, within
// the limits below, the engine: the counts, the list, the tables and kv_count. It ends at the first wrong step.
//
// checks returns "" if the trace is too long, if its pool does not fit in memory, or if allocations must fail.
func checks(name, sentence string, ops []trace.Op) string {
	expected, err := oracle.New()
	if err != nil || len(ops) > maxChecked {
		return ""
	}
	defer expected.Close()
	w := &world{expected}
	var body strings.Builder
	for i, op := range ops {
		if op.Fail > 0 || op.Large() {
			return ""
		}
		fmt.Fprintf(&body, "\n    /* step %d */\n", i+1)
		body.WriteString(w.checked(i+1, op))
		if op.Engine != trace.None {
			body.WriteString(w.state(i+1, op.Engine))
		}
		body.WriteString("    if (wrong) {\n        return 1;\n    }\n")
	}
	for engine, e := range w.Engines {
		if e != nil {
			fmt.Fprintf(&body, "    expect(%d, \"llm_destroy(e[%d])\", llm_destroy(e[%d]), 0);\n", len(ops)+1, engine, engine)
		}
	}
	text := body.String() + "    return wrong;\n"
	return head(name+"\n * "+sentence, ops) + pools(ops, false) + expecting + helpers(text) + "\nint main(void) {" + text + "}\n"
}

const expecting = `
static int wrong;

static void expect(int step, const char *what, int actual, int expected) {
    if (actual != expected) {
        printf("step %d: %s is %d, expected %d\n", step, what, actual, expected);
        wrong = 1;
    }
}
`

func (w *world) checked(step int, op trace.Op) string {
	if op.Given || op.Kind.Outside() || op.Kind.Many() {
		return w.statements(op)
	}
	call := strings.TrimSuffix(Statement(op), ";")
	refused := w.Play(op).Refused()
	switch op.Kind {
	case trace.Init:
		if op.A >= 0 {
			keep, _, _ := strings.Cut(call, " = ")
			text := fmt.Sprintf("    %s;\n    expect(%d, \"%s != NULL\", %s != NULL, %d);\n", call, step, call, keep, digit(!refused))
			return text + "    if (wrong) {\n        return 1;\n    }\n"
		}
		fallthrough
	case trace.Create, trace.Fork:
		return fmt.Sprintf("    expect(%d, \"%s != NULL\", %s != NULL, %d);\n", step, call, call, digit(!refused))
	}
	return fmt.Sprintf("    expect(%d, \"%s\", %s, %d);\n", step, call, call, -digit(refused))
}

func digit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Limits of what is checked of an engine, for readable programs.
const (
	maxBlocks    = 32
	maxSequences = 6
	maxEntries   = 12
)

// state returns C that checks an engine after a step.
func (w *world) state(step, engine int) string {
	e := w.Engines[engine]
	if e == nil {
		return ""
	}
	var b strings.Builder
	field := func(name string, value int32) {
		fmt.Fprintf(&b, "    expect(%d, \"engine->%s\", e[%d]->%s, %d);\n", step, name, engine, name, value)
	}
	field("total_local_blocks", e.Total)
	field("free_local_blocks", e.Free)
	var counts []string
	for _, n := range oracle.Counts(e)[:min(int(e.Total), maxBlocks)] {
		counts = append(counts, fmt.Sprint(n))
	}
	ids := w.ids(engine)
	fmt.Fprintf(&b, `    {
        static const int counts[] = {%s};
        static const int ids[] = {%s};
        expect_counts(%d, e[%d], counts, %d);
        expect(%d, "whether active_seqs has the right ids, in both directions,", list_is(e[%d], ids, %d), 1);
    }
    if (wrong) {
        return 1;
    }
`, strings.Join(counts, ", "), strings.Join(append(ids, "0"), ", "), step, engine, len(counts), step, engine, len(ids))
	all := slices.Collect(e.Sequences)
	for _, s := range all[:min(len(all), maxSequences)] {
		b.WriteString(sequenceOf(step, engine, s))
	}
	return b.String()
}

func sequenceOf(step, engine int, s *course.Sequence) string {
	var b strings.Builder
	find := fmt.Sprintf("find_given(e[%d], %s)", engine, literal(s.ID))
	line := func(name, actual string, value int32) {
		fmt.Fprintf(&b, "    expect(%d, \"sequence %d: %s\", %s, %d);\n", step, s.ID, name, actual, value)
	}
	line("kv_count", find+"->kv_count", s.KVCount)
	entries := 0
	for slot, table := range s.BlockTable {
		condition := fmt.Sprintf("block_table[%d] != NULL", slot)
		line(condition, find+"->"+condition, int32(digit(table != nil)))
		for j := 0; table != nil && j < len(table) && entries < maxEntries; j++ {
			if table[j] >= 0 {
				entry := fmt.Sprintf("block_table[%d][%d]", slot, j)
				line(entry, find+"->"+condition+" ? "+find+"->"+entry+" : -2", table[j])
				entries++
			}
		}
	}
	return b.String()
}
