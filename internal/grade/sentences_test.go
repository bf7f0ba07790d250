package grade_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

// A quoted is a row of sentences.txt: a wrong submission, and words of the sentences of
// which its first finding has to quote one.
type quoted struct {
	name  string
	words []string
}

func sentences(t *testing.T) (all []quoted) {
	t.Helper()
	for line := range strings.Lines(read(t, submissions+"sentences.txt")) {
		name, words, found := strings.Cut(strings.TrimSpace(line), "  ")
		if name == "" || name[0] == '#' {
			continue
		}
		require.True(t, found, line)
		all = append(all, quoted{name, strings.Split(words, " | ")})
	}
	return all
}

// misquoted are mutants whose first finding once quoted a sentence that was not broken.
var misquoted = []string{"D3", "F12", "A27", "A20", "R66", "A22", "A13", "A30", "A7", "A37", "C9", "C10", "A18", "K2", "R67", "R68"}

// Ensure that the first finding of a wrong submission quotes the sentence that a reader would
// quote. In a short run, the mutants of misquoted are graded, and one for each sentence, by
// the directed traces of their task (which show nothing of F2).
func TestTheSentenceIsTheOneThatWasBroken(t *testing.T) {
	level.SkipQuick(t)
	g := newGrader(t)
	g.Tries = 0
	if !level.Long() {
		g.LeaveOutSweeps()
	}
	table := map[string]corpus.Mutant{}
	for _, m := range mutants(t) {
		table[m.ID] = m
	}
	seen := map[string]bool{}
	for _, q := range sentences(t) {
		m, isMutant := table[q.name]
		file, only := submissions+"independent/wrong/"+q.name, ""
		if isMutant {
			file = put(t, m)
		}
		if !level.Long() {
			if !isMutant || q.name == "F2" || taskOf(m) == 0 || len(q.words) > 1 || seen[q.words[0]] && !slices.Contains(misquoted, q.name) {
				continue
			}
			only = fmt.Sprintf("task%d_", taskOf(m))
		}
		seen[q.words[0]] = true
		t.Run(q.name, func(t *testing.T) {
			t.Parallel()
			g := *g
			g.Only = only
			r, err := g.File(file)
			require.NoError(t, err)
			require.NotEmpty(t, r.Findings)
			f := r.Findings[0]
			require.True(t, slices.ContainsFunc(q.words, func(words string) bool { return strings.Contains(f.Sentence, words) }),
				"it quotes %q: %s, %s", f.Sentence, f.Difference.Error(), f.Facts)
		})
	}
}

// A free_sequence may leave an engine without a ref_count array.
func TestAnEngineWithoutItsCountsIsJudged(t *testing.T) {
	level.SkipQuick(t)
	g := newGrader(t)
	g.Tries, g.Only = 0, "task2_free"
	g.LeaveOutSweeps()
	correct := corpus.Correct(t)
	head, body, found := strings.Cut(correct, "int free_sequence(")
	require.True(t, found)
	for _, value := range []string{"NULL", "engine->pool_base_ptr", "(int *)16"} {
		t.Run(value, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "llm_memory.c")
			changed := strings.Replace(body, "return 0;", "engine->ref_count = "+value+"; return 0;", 1)
			require.NoError(t, os.WriteFile(file, []byte(head+"int free_sequence("+changed), 0o644))
			r, err := g.File(file)
			require.NoError(t, err)
			require.NotEmpty(t, r.Findings)
			require.Contains(t, r.Findings[0].Headline(), "engine->ref_count is not an allocation")
		})
	}
}
