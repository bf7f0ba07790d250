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

// together is a program that holds many mutants: to compile and to link each takes longer than to
// run it. In its folder is a link for each mutant, whose name is the mutant's: the suite with that
// submission. In a folder below it are those without heap.o, for Memcheck.
var together struct {
	sync.Once
	dir string
}

// right reports whether the suite must pass.
func right(m corpus.Mutant) bool { return m.Kind == corpus.Equivalent || m.Kind == corpus.Unseen }

// typical are the mutants of make test.
func typical(all []corpus.Mutant) []corpus.Mutant {
	some := corpus.Typical(all)
	for i, m := range all {
		if (i%shortUsesOf == 0 || advised[m.ID] != "") && !slices.ContainsFunc(some, func(o corpus.Mutant) bool { return o.ID == m.ID }) {
			some = append(some, m)
		}
	}
	return some
}

// buildMutant returns the suite over a mutant. In make test all come from one compilation.
func buildMutant(t *testing.T, m corpus.Mutant, withHeap bool) string {
	t.Helper()
	if *matrix || level.Long() {
		if withHeap {
			return build(t, mutate(t, m), objects)
		}
		return build(t, mutate(t, m), objectsWithoutHeap)
	}
	together.Do(func() { together.dir = assemble(t) })
	require.NotEmpty(t, together.dir, "another test could not compile it")
	if withHeap {
		return filepath.Join(together.dir, m.ID)
	}
	return filepath.Join(together.dir, "memcheck", m.ID)
}

// fileScope matches a name that is defined in file scope.
var fileScope = regexp.MustCompile(`(?m)^[A-Za-z][^(\[;=\n]*?(\w+)\s*[(\[;=]`)

// assemble compiles the mutants of make test as one source, in which each has names that begin
// with its ID. The program calls the mutant by whose name it is called.
func assemble(t *testing.T) string {
	t.Helper()
	var text, entries strings.Builder
	text.WriteString("#include \"llm_memory.h\"\n#include <limits.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n")
	var ids []string
	for _, m := range typical(mutants(t)) {
		if m.Kind == corpus.Rejected {
			continue
		}
		ids = append(ids, m.ID)
		source := mutate(t, m)
		names := map[string]bool{}
		for _, match := range fileScope.FindAllStringSubmatch(source, -1) {
			names[match[1]] = true
		}
		for name := range names {
			fmt.Fprintf(&text, "#define %s %s_%s\n", name, m.ID, name)
		}
		fmt.Fprintf(&text, "#line 1 \"%s.c\"\n%s\n", m.ID, source)
		for name := range names {
			fmt.Fprintf(&text, "#undef %s\n", name)
		}
		fmt.Fprintf(&entries, "    {\"%[1]s\", %[1]s_llm_init, %[1]s_create_sequence, %[1]s_free_sequence, %[1]s_fork_sequence, %[1]s_append_kv, %[1]s_llm_destroy},\n", m.ID)
	}
	fmt.Fprintf(&text, chooser, entries.String())
	dir, err := os.MkdirTemp(scratch, "")
	require.NoError(t, err)
	source, object := filepath.Join(dir, "all.c"), filepath.Join(dir, "all.o")
	require.NoError(t, os.WriteFile(source, []byte(text.String()), 0o644))
	out, err := gcc(append(optimiser(), "-I"+root, "-c", source, "-o", object)...)
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

const chooser = `
static const struct submission {
    const char *id;
    LLMEngine *(*init)(void *, size_t);
    Sequence *(*create)(LLMEngine *, int, int);
    int (*release)(LLMEngine *, int);
    Sequence *(*fork)(LLMEngine *, int, int);
    int (*append)(LLMEngine *, int, int);
    int (*destroy)(LLMEngine *);
} all[] = {
%s};

static const struct submission *mine;

__attribute__((constructor)) static void choose(int argc, char **argv) {
    const char *name = argc > 0 ? strrchr(argv[0], '/') : NULL;
    for (size_t i = 0; i < sizeof all / sizeof *all && name != NULL; i++) {
        mine = strcmp(name + 1, all[i].id) == 0 ? &all[i] : mine;
    }
    if (mine == NULL) {
        fprintf(stderr, "there is no such submission\n");
        abort();
    }
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size) { return mine->init(pool_addr, pool_size); }

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) { return mine->create(engine, seq_id, initial_kv_len); }

int free_sequence(LLMEngine *engine, int seq_id) { return mine->release(engine, seq_id); }

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) { return mine->fork(engine, parent_seq_id, new_seq_id); }

int append_kv(LLMEngine *engine, int seq_id, int kv_data) { return mine->append(engine, seq_id, kv_data); }

int llm_destroy(LLMEngine *engine) { return mine->destroy(engine); }
`
