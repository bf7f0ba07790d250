package suite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

// manyMutants is one program that contains many mutants, and its folder. Compiling and linking a program for each
// mutant would take longer than running it. The folder has a link to the program for each mutant; the name of the link
// selects the mutant. The subfolder memcheck has the same program without heap.o.
var manyMutants struct {
	sync.Once
	dir string
}

func typical(all []corpus.Mutant) []corpus.Mutant {
	some := corpus.Typical(all)
	for _, m := range all {
		if advised[m.ID] != "" && !slices.ContainsFunc(some, func(o corpus.Mutant) bool { return o.ID == m.ID }) {
			some = append(some, m)
		}
	}
	return some
}

// buildMutant returns the path of the suite linked with a mutant. Except in make exhaustive, all mutants are compiled as one
// program.
func buildMutant(t *testing.T, m corpus.Mutant, withHeap bool) string {
	t.Helper()
	if *matrix || level.Exhaustive() {
		if withHeap {
			return build(t, mutate(t, m), objects)
		}
		return build(t, mutate(t, m), objectsWithoutHeap)
	}
	manyMutants.Do(func() { manyMutants.dir = assemble(t) })
	require.NotEmpty(t, manyMutants.dir, "another test could not compile it")
	if withHeap {
		return filepath.Join(manyMutants.dir, m.ID)
	}
	return filepath.Join(manyMutants.dir, "memcheck", m.ID)
}

var (
	fileScope = regexp.MustCompile(`(?m)^[A-Za-z][^(\[;=\n]*?(\w+)\s*[(\[;=]`)
	macro     = regexp.MustCompile(`(?m)^#define\s+(\w+)`)
)

// A part is one function of a source file, with the text between the previous function and this one.
type part struct {
	text          string
	names, macros []string // that it defines
	changed       bool     // the correct submission has no such part, or the part uses a name from one that is changed
}

func partsOf(source string) (all []*part) {
	for text := range strings.SplitAfterSeq(source, "\n}\n") {
		all = append(all, &part{text: text, names: matches(fileScope, text), macros: matches(macro, text)})
	}
	return all
}

func matches(r *regexp.Regexp, text string) (names []string) {
	for _, match := range r.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(names, match[1]) {
			names = append(names, match[1])
		}
	}
	return names
}

func markChanged(mutant []*part, correct string) {
	for _, p := range mutant {
		p.changed = !strings.Contains(correct, p.text)
	}
	for again := true; again; {
		again = false
		for _, p := range mutant {
			for _, other := range mutant {
				if !p.changed && other.changed && slices.ContainsFunc(slices.Concat(other.names, other.macros), func(name string) bool {
					return regexp.MustCompile(`\b` + name + `\b`).MatchString(p.text)
				}) {
					p.changed, again = true, true
				}
			}
		}
	}
}

// assemble compiles the mutants of make test as one source, and returns the folder of the program. It puts the ID of a
// mutant before the names defined by the mutant. If a mutant shares parts with the correct submission, they are
// compiled once. The program (testdata/choose.c) runs the mutant whose ID is the program's name.
func assemble(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	text.WriteString("#include \"together.h\"\n")
	correct := corpus.Correct(t)
	add := func(id string, parts []*part) {
		defined := map[string]string{}
		for _, p := range parts {
			for _, name := range p.names {
				defined[name] = "correct"
				if p.changed {
					defined[name] = id
				}
			}
		}
		for name, prefix := range defined {
			fmt.Fprintf(&text, "#define %s %s_%s\n", name, prefix, name)
		}
		fmt.Fprintf(&text, "#line 1 \"%s.c\"\n", id)
		for _, p := range parts {
			if p.changed {
				text.WriteString(p.text + "\n")
			}
		}
		fmt.Fprintf(&text, "static const struct submission of_%[1]s = {\"%[1]s\", llm_init, create_sequence, free_sequence, fork_sequence, append_kv, llm_destroy};\n", id)
		for name := range defined {
			fmt.Fprintf(&text, "#undef %s\n", name)
		}
	}
	all := partsOf(correct)
	for _, p := range all {
		p.changed = true
	}
	add("correct", all)
	ids, entries := []string{"correct"}, "&of_correct"
	for _, m := range typical(mutants(t)) {
		if m.Kind == corpus.Rejected {
			continue
		}
		ids, entries = append(ids, m.ID), entries+", &of_"+m.ID
		mutant := partsOf(mutate(t, m))
		markChanged(mutant, correct)
		add(m.ID, mutant)
	}
	fmt.Fprintf(&text, "#define ALL %s\n#include \"choose.c\"\n", entries)
	dir, err := os.MkdirTemp(scratch, "")
	require.NoError(t, err)
	source, object := filepath.Join(dir, "all.c"), filepath.Join(dir, "all.o")
	require.NoError(t, os.WriteFile(source, []byte(text.String()), 0o644))
	out, err := gcc(append(quick("-O0"), "-I"+root, "-Itestdata", "-c", source, "-o", object)...)
	require.NoError(t, err, "%s", out)
	for folder, suite := range map[string][]string{dir: objects, filepath.Join(dir, "memcheck"): objectsWithoutHeap} {
		require.NoError(t, os.MkdirAll(folder, 0o755))
		program := filepath.Join(folder, "suite")
		out, err := gcc(append([]string{object, "-o", program}, suite...)...)
		require.NoError(t, err, "%s", out)
		for _, id := range ids {
			require.NoError(t, os.Symlink("suite", filepath.Join(folder, id)))
		}
	}
	return dir
}
