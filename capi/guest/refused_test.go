package guest_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/course/handout"
)

// refusals lists the calls that testdata/guest/refused.c makes and the library refuses, in order. Each entry has the
// function, words of the reason, and the handout's sentence if there is one.
var refusals = []struct{ function, reason, clause string }{
	{"llm_init", "the pool is NULL", handout.InitRefuses},
	{"llm_init", "less than one block", handout.InitRefuses},
	{"llm_init", "more than INT_MAX blocks", handout.InitRefuses},
	{"create_sequence", "engine is NULL", handout.NullEngine},
	{"create_sequence", "initial_kv_len is not positive", handout.CreateRefuses},
	{"create_sequence", "a sequence with this id exists", handout.CreateRefuses},
	{"create_sequence", "more than 256 blocks", handout.CreateProbes},
	{"create_sequence", "more blocks than are free", handout.CreateProbes},
	{"fork_sequence", "engine is NULL", handout.NullEngine},
	{"fork_sequence", "a sequence with the new id exists", handout.ForkIDs},
	{"fork_sequence", "no sequence has the parent's id", handout.ForkIDs},
	{"append_kv", "engine is NULL", handout.NullEngine},
	{"append_kv", "no sequence has this id", handout.AppendFinds},
	{"append_kv", "beyond the last of 256", handout.AppendFull},
	{"append_kv_batch", "beyond the last of 256", handout.AppendFull},
	{"append_kv_run", "beyond the last of 256", handout.AppendFull},
	{"append_kv", "no block is free", handout.AppendProbes},
	{"append_kv_batch", "no block is free", handout.AppendProbes},
	{"append_kv_run", "no block is free", handout.AppendProbes},
	{"append_kv_batch", "a pointer is NULL or n is not positive", ""},
	{"append_kv_run", "a pointer is NULL or n is not positive", ""},
	{"append_kv_batch", "engine is NULL", handout.NullEngine},
	{"append_kv_run", "engine is NULL", handout.NullEngine},
	{"append_kv", "the structs contradict each other", ""},
	{"free_sequence", "engine is NULL", handout.NullEngine},
	{"free_sequence", "no sequence has this id", handout.FreeNotFound},
	{"llm_destroy", "engine is NULL", handout.NullEngine},
}

// requireRefusals requires that lines has one line for each refusal, followed by one line for each of texts.
func requireRefusals(t *testing.T, lines string, texts ...string) {
	t.Helper()
	got := strings.Split(strings.TrimSuffix(lines, "\n"), "\n")
	require.Len(t, got, len(refusals)+len(texts), lines)
	quoted := regexp.MustCompile(`Handout: "(.*)"$`)
	for i, r := range refusals {
		require.Regexp(t, `\b`+r.function+`\b`, got[i])
		require.Contains(t, got[i], r.reason)
		if r.clause == "" {
			require.NotContains(t, got[i], "Handout")
			continue
		}
		require.Regexp(t, quoted, got[i])
		require.Equal(t, r.clause, quoted.FindStringSubmatch(got[i])[1])
	}
	for i, words := range texts {
		require.Contains(t, got[len(refusals)+i], words)
	}
}

func TestARefusedCallSaysWhy(t *testing.T) {
	each(t, linked, func(t *testing.T, w way) {
		prog := w.compile(t, "refused", "-fno-builtin", "-DFAILING")
		quiet := succeed(t, t.TempDir(), nil, prog)
		requireRefusals(t, quiet.stdout, "create_sequence: malloc returned NULL")
		require.Empty(t, quiet.stderr, "without LLM_MEMORY_DEBUG")

		loud := succeed(t, t.TempDir(), []string{"LLM_MEMORY_DEBUG=1"}, prog)
		require.Equal(t, quiet.stdout, loud.stdout)
		requireRefusals(t, loud.stderr, "malloc returned NULL", "free_sequence(0x")
		for _, line := range strings.Split(strings.TrimSuffix(loud.stderr, "\n"), "\n") {
			require.Regexp(t, `^llm_memory: \w+\((\(nil\)|0x[0-9a-f]+)(, .*)?\) returned (NULL|-1): `, line)
		}
		require.Contains(t, loud.stderr, "(nil), 1, 1) returned -1: engine is NULL")
		require.Regexp(t, `create_sequence\(0x[0-9a-f]+, 2, 720\) returned NULL: the records need more blocks than are free`, loud.stderr)
		if w.checked(shared) {
			requireClean(t, memcheck(t, []string{"LLM_MEMORY_DEBUG=1"}, w.compile(t, "refused")))
		}
	})
}
