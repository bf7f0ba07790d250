// Package reproduce writes a trace as a C program that checks itself. Compiled with llm_memory.c, the program says
// what is wrong; its exit status is 1 until llm_memory.c is correct. The package also writes the folder of tests for
// students.
package reproduce

import (
	"fmt"
	"slices"
	"strings"

	"llmmemory/internal/homework/course/oracle"
	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/isolation/build"
	"llmmemory/internal/homework/grade/judging/compare"
)

// A world is the oracle's state after some steps of a trace.
type world struct{ *oracle.World }

func (w *world) ids(engine int) (all []string) {
	e := w.Engines[engine]
	if e == nil {
		return nil
	}
	for s := range e.Sequences {
		all = append(all, literal(s.ID))
	}
	return all
}

// Program returns a C program that plays a trace up to its last call and shows the difference there. It returns "" if
// there is no memory for the oracle.
func Program(name string, ops []trace.Op, d *compare.Difference) string {
	expected, err := oracle.New()
	if err != nil {
		return ""
	}
	defer expected.Close()
	w := &world{expected}
	ops = ops[:d.Step+1]
	var body strings.Builder
	for _, op := range ops[:d.Step] {
		body.WriteString(w.statements(op))
	}
	last, before := ops[d.Step], w.Live()
	w.Play(last)
	c := checkOf(last, d, w, before)
	if c.before != "" {
		fmt.Fprintf(&body, "    %s\n", c.before)
	}
	fmt.Fprintf(&body, "\n    /* %s: expected %s, was %s. */\n", comment(d.Field), comment(d.Expected), comment(d.Actual))
	if last.Fail > 0 {
		fmt.Fprintf(&body, "    /* Here the allocation number %d of the call fails. */\n", last.Fail)
	}
	fmt.Fprintf(&body, "    %s\n", c.call)
	body.WriteString(c.text(d))
	watched := d.Channel == compare.Pool
	text := fills(ops, watched) + body.String()
	if c.heap {
		text = probe + text
	}
	return head(name, ops) + pools(ops, watched) + heap + helpers(text) + deathHandler + "\nint main(void) {\n" + watching + text + "}\n"
}

func (c check) text(d *compare.Difference) string {
	if c.actual == "" {
		return "    puts(\"every call returned; valgrind may show more\");\n    return overruns() + (int)bad_frees == 0 ? 0 : 1;\n"
	}
	said := strings.NewReplacer("%", "%%", "\"", "'", "\\", "/", "\n", " ")
	text := fmt.Sprintf("    int actual = %s, expected = %s;\n", c.actual, c.expected)
	if c.heap {
		text += "    if (!counted) {\n        puts(\"under Valgrind and AddressSanitizer this program counts no allocations: read what they say\");\n        return 0;\n    }\n"
	}
	switch field := said.Replace(d.Field); c.format {
	case "":
		headline := said.Replace(d.Headline())
		text += fmt.Sprintf("    printf(actual == expected ? \"now right: %s\\n\" : \"%s\\n\");\n", field, headline)
	case "%d":
		text += fmt.Sprintf("    char number[16];\n    printf(\"%s: expected %%d, is %%s\\n\", expected, shown(actual, number));\n", field)
	default:
		text += fmt.Sprintf("    printf(\"%s: expected %s, is %s\\n\", expected, actual);\n", field, c.format, c.format)
	}
	return text + "    return actual == expected ? 0 : 1;\n"
}

func head(name string, ops []trace.Op) string {
	var b strings.Builder
	fmt.Fprintf(&b, "/*\n * %s\n *   gcc %s llm_memory.c this.c -o this && ./this\n */\n", comment(name), build.CourseFlags)
	b.WriteString("#include \"llm_memory.h\"\n\n#include <signal.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <sys/mman.h>\n\n")
	for _, op := range ops {
		if op.Engine != trace.None && !(op.Kind == trace.Init && op.A < 0) {
			fmt.Fprintf(&b, "static LLMEngine *e[%d];\n", trace.Engines)
			break
		}
	}
	return b.String()
}

func comment(text string) string { return strings.ReplaceAll(text, "*/", "* /") }

func sizes(ops []trace.Op) (maxSizes [trace.Engines]int32) {
	for _, op := range ops {
		if op.Kind == trace.Init && op.A >= 0 && !op.Large() {
			maxSizes[op.Engine] = max(maxSizes[op.Engine], op.A, 1)
		}
	}
	return maxSizes
}

const slack = oracle.Slack / 4 // ints on both sides of a pool that is watched

// pools returns the C declarations of the pools. If watched is set, there are unused ints (slack) before and behind
// each pool.
func pools(ops []trace.Op, watched bool) string {
	var b strings.Builder
	for engine, size := range sizes(ops) {
		before := 0
		if watched {
			before = slack
		}
		ints := before + int(size+3)/4 + before
		if slices.ContainsFunc(ops, func(op trace.Op) bool { return op.Engine == engine && op.ForInts() }) {
			before++ // aligned for ints and no more
		}
		switch {
		case size > 0 && before > 0:
			fmt.Fprintf(&b, "static _Alignas(4096) int space%d[%d]; /* whole pages */\n#define pool%d (space%d + %d)\n", engine, (ints+before%4+1023)/1024*1024, engine, engine, before)
		case size > 0:
			fmt.Fprintf(&b, "static int pool%d[%d];\n", engine, ints)
		}
	}
	return b.String()
}

// fills returns C code that fills the pools and the slack around them with the same bytes as the grader. It leaves out
// large pools. If watched is not set, fills returns "".
func fills(ops []trace.Op, watched bool) string {
	var b strings.Builder
	for engine, size := range sizes(ops) {
		if size > 0 && watched {
			fmt.Fprintf(&b, "    fill(pool%d - %d, %d);\n", engine, slack, (int(size)+3)/4*4+2*oracle.Slack)
		}
	}
	return b.String()
}

func (w *world) statements(op trace.Op) string {
	if !op.Given && !op.Kind.Outside() {
		w.Play(op)
		return "    " + Statement(op) + "\n"
	}
	var b strings.Builder
	for _, c := range w.Write(op) {
		fmt.Fprintf(&b, "    %s\n", changed(c))
	}
	return b.String()
}
