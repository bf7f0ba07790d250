package grade_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/grade"
	"llmmemory/internal/homework/grade/judging/compare"
	"llmmemory/internal/homework/grade/judging/rules"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

func init() { level.CollectLess() }

const submissions = "../../../testdata/submissions/"

// TestMain also runs the process that parses sources (rules.Serve). To save time, calls have a fourth of the usual
// processor time.
func TestMain(m *testing.M) {
	rules.Serve()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	compare.Patience.Call /= 4
	compare.Patience.Process /= 4
	if flag.Parse(); !*matrix && *repeats == 0 && *loaded == 0 { // which are about what students get
		defer level.CheapCompiler("-O1")()
	}
	status := m.Run()
	for _, g := range graders {
		if err := g.Close(); err != nil {
			fmt.Println(err)
			status = 1
		}
	}
	return status
}

// graders has the graders of all tests by their compiler flags, so that each runner is compiled once.
var graders = map[string]*grade.Grader{}

// newGrader returns a grader for a test. Parallel subtests share it.
func newGrader(t *testing.T, flags ...string) *grade.Grader {
	t.Helper()
	key := strings.Join(flags, " ")
	if graders[key] == nil {
		g, err := grade.NewGrader(flags...)
		require.NoError(t, err)
		graders[key] = g
	}
	g := *graders[key]
	if !level.Exhaustive() && !*matrix && *repeats == 0 {
		g.Traces = 4 // random ones take a tenth of the time of a file
	}
	return &g
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func mutants(t *testing.T) []corpus.Mutant {
	t.Helper()
	return append(corpus.Mutants(t, "mutants.txt"), corpus.Mutant{ID: "correct", Kind: corpus.Equivalent})
}

func put(t *testing.T, m corpus.Mutant) string {
	t.Helper()
	source, err := m.Apply(corpus.Correct(t))
	require.NoError(t, err)
	return putText(t, source)
}

func putText(t *testing.T, source string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "llm_memory.c")
	require.NoError(t, os.WriteFile(file, []byte(source), 0o644))
	return file
}

var (
	matrix = flag.Bool("matrix", false, "print which stage sees which mutant")
	update = flag.Bool("update", false, "in make exhaustive: write testdata/findings.json.gz")
)

// firsts are the first findings of the corpus, by file name.
type firsts map[string]stored

type stored struct {
	grade.Finding
	Fallback string
}

var storing sync.Mutex

func (f firsts) add(name string, r *grade.Report) {
	storing.Lock()
	defer storing.Unlock()
	if len(r.Findings) == 0 {
		return
	}
	s := stored{Finding: r.Findings[0]}
	for _, test := range r.Tests {
		if test.Name == s.Name {
			s.Fallback = test.Sentence
		}
	}
	s.Scene, s.Lines, s.Same = nil, nil, nil
	f[name] = s
}

func (f firsts) write(t *testing.T) {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	require.NoError(t, errors.Join(json.NewEncoder(z).Encode(f), z.Close()))
	require.NoError(t, os.WriteFile("testdata/findings.json.gz", b.Bytes(), 0o644))
}

// Ensure that each wrong submission in the table of mutants loses points in its task. Its report must quote the
// sentence of the handout that sentences.txt names. Each correct variant must lose no points.
//
// With -matrix, or in make exhaustive, every mutant goes through every stage. Otherwise, only the mutants that
// typicalOf returns are graded. A wrong mutant is first graded with only the directed traces of its task. If one of
// these traces detects the mutant, the test skips the other stages to save time. It then checks the quoted sentence
// only for the mutants in the variable showing.
func TestNothingWrongPassesAndNothingRightFails(t *testing.T) {
	level.SkipQuick(t)
	g := newGrader(t)
	g.Tries, g.AllStages = 0, *matrix || level.Exhaustive()
	optimizing := newGrader(t, "-O2") // only then does the compiler see some mistakes
	brief := *g
	brief.LeaveOutSweeps()
	kills := &killMatrix{seen: map[string][]grade.StageName{}}
	quotes := sentences(t)
	first := firsts{}
	t.Run("every mutant", func(t *testing.T) {
		all := mutants(t)
		if !g.AllStages {
			all = typicalOf(all)
		}
		for _, m := range all {
			t.Run(m.ID, func(t *testing.T) {
				t.Parallel()
				file := put(t, m)
				if task := taskOf(m); task != 0 && !g.AllStages && m.Kind == corpus.Wrong {
					directed := *g
					directed.Only = fmt.Sprintf("task%d_", task)
					if r := gradedBy(t, &directed, file); failsIn(r, task) {
						requireDeserved(t, m, r)
						if slices.Contains(showing, m.ID) {
							requireQuotes(t, quotes[m.ID], r)
						}
						return
					}
				}
				g := g
				switch {
				case m.Kind == corpus.Rejected:
					g = optimizing
				case !level.Long() && (m.Kind == corpus.Memcheck || m.Kind == corpus.Equivalent):
					g = &brief
				}
				r := gradedBy(t, g, file)
				kills.add(m, r)
				requireDeserved(t, m, r)
				requireTouched(t, m, r)
				requireQuotes(t, quotes[m.ID], r)
				first.add(m.ID, r)
			})
		}
		if level.Exhaustive() {
			submissionsWrittenFromTheHandoutAlone(t, g, quotes, first)
		}
	})
	if *update {
		first.write(t)
	}
	if *matrix {
		kills.print(mutants(t))
	}
	requireEveryStageIsNeeded(t, kills)
}

// requireEveryStageIsNeeded requires for each stage a mutant that no other stage detects.
func requireEveryStageIsNeeded(t *testing.T, kills *killMatrix) {
	t.Helper()
	if len(kills.seen) < len(mutants(t)) {
		return // only some were graded in every stage
	}
	for _, stages := range [][]grade.StageName{{grade.Directed}, {grade.Heap}, {grade.Memcheck}, {grade.Sanitizers}} {
		if ids := kills.caughtOnlyBy(stages...); len(ids) == 0 {
			t.Errorf("the stages %q see nothing that no others do", stages)
		}
	}
}

// missed lists the wrong files of testdata/submissions/independent that get full marks. They are wrong only when
// malloc fails, about which the handout says nothing (cmd/llmgrade/README.md, "What costs nothing").
var missed = []string{
	"s1_06_init_leaks_engine_on_oom.c", "s1_37_fork_leaks_on_oom.c", "s1_52_create_first_fit_stale_rollback.c",
	"s1_58_create_no_rollback.c", "s2_01_create_oom_leak.c", "s2_09_fork_rollback_zeroes_refs.c",
	"s2_25_create_fork_oom_leaks_root.c", "s2_61_append_oom_loses_block.c", "s2_62_append_malloc_unchecked.c",
}

// submissionsWrittenFromTheHandoutAlone grades files whose authors knew only the handout. Correct files must get full
// marks, and wrong files must lose points.
func submissionsWrittenFromTheHandoutAlone(t *testing.T, g *grade.Grader, quotes map[string][]string, first firsts) {
	files, err := filepath.Glob(submissions + "independent/*/*.c")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := gradedBy(t, g, file)
			full := filepath.Base(filepath.Dir(file)) == "right" || slices.Contains(missed, name)
			require.Equal(t, full, r.Score == 100, "%v points", r.Score)
			requireQuotes(t, quotes[name], r)
			first.add(name, r)
		})
	}
}

func gradedBy(t *testing.T, g *grade.Grader, file string) *grade.Report {
	t.Helper()
	r, err := g.File(file)
	require.NoError(t, err)
	return r
}

// sentences reads sentences.txt and returns, for each wrong submission that the file lists, phrases of the handout. The
// first finding in the report of the submission must quote a sentence that contains one of its phrases. The phrase
// "none" allows a finding that quotes no sentence.
func sentences(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for line := range strings.Lines(read(t, submissions+"sentences.txt")) {
		name, words, found := strings.Cut(strings.TrimSpace(line), "  ")
		if found && name[0] != '#' {
			all[name] = strings.Split(words, " | ")
		}
	}
	return all
}

func requireQuotes(t *testing.T, words []string, r *grade.Report) {
	t.Helper()
	if words == nil {
		return
	}
	require.NotEmpty(t, r.Findings)
	f := r.Findings[0]
	require.True(t, slices.ContainsFunc(words, func(words string) bool {
		return words == "none" && f.Sentence == "" || strings.Contains(f.Sentence, words)
	}),
		"it quotes %q: %s, %s", f.Sentence, f.Difference.Error(), f.Facts)
}

// showing are mutants that together show every compare.Fact. In make test they are one for each function of the homework.
var showing = level.First(6, strings.Fields("I2 C5 K6 A8 F1 D3 R52 C6 F11 A20 C2 C12 F9 K7 A31 A39 R51"))

// typicalOf returns the first mutant of each task and kind, and the mutants in the variable showing. The tests of
// grader/suite run more mutants.
func typicalOf(all []corpus.Mutant) (first []corpus.Mutant) {
	seen := map[string]bool{}
	for _, m := range all {
		key := fmt.Sprint(m.Kind, taskOf(m))
		if !seen[key] || slices.Contains(showing, m.ID) {
			first = append(first, m)
		}
		seen[key] = true
	}
	return first
}

func requireDeserved(t *testing.T, m corpus.Mutant, r *grade.Report) {
	t.Helper()
	switch m.Kind {
	case corpus.Equivalent:
		require.Equal(t, r.MaxScore, r.Score, "%s: %v", m.What, r.Failed())
		require.Empty(t, r.Findings)
	case corpus.Rejected:
		require.Zero(t, r.Score)
		require.NotNil(t, r.Rejected)
	default:
		require.Less(t, r.Score, r.MaxScore, m.What)
		require.NotEmpty(t, r.Findings)
		if task := taskOf(m); task != 0 {
			require.True(t, failsIn(r, task), "%s belongs to task %d, but these failed: %v", m.What, task, r.Failed())
		}
	}
}

func failsIn(r *grade.Report, task int) bool {
	return slices.ContainsFunc(r.Tests, func(test grade.Test) bool {
		return test.Task == task && test.Status == grade.Failed
	})
}

var (
	inName   = regexp.MustCompile(`task([1-5])`)
	function = []string{"init", "create", "fork", "append", "free", "destroy"}
)

// taskOf returns the task of the handout that a mutant breaks, or 0 if there is no single task. The name of the test
// that must detect the mutant contains the task.
func taskOf(m corpus.Mutant) int {
	if n := inName.FindStringSubmatch(m.Expect); n != nil {
		task, _ := strconv.Atoi(n[1])
		return task
	}
	for i, name := range function {
		if strings.Contains(m.Expect, "_"+name+"_") || strings.HasPrefix(m.Expect, name) {
			return []int{1, 2, 3, 4, 2, 5}[i]
		}
	}
	return 0
}

type killMatrix struct {
	sync.Mutex
	seen map[string][]grade.StageName
}

func (k *killMatrix) add(m corpus.Mutant, r *grade.Report) {
	k.Lock()
	defer k.Unlock()
	if r.Rejected != nil {
		k.seen[m.ID] = []grade.StageName{r.Rejected.Stage}
	}
	for _, s := range r.Stages {
		if s.Status() == grade.Failed {
			k.seen[m.ID] = append(k.seen[m.ID], s.Name)
		}
	}
}

func (k *killMatrix) caughtOnlyBy(stages ...grade.StageName) (ids []string) {
	for id, seen := range k.seen {
		if !slices.ContainsFunc(seen, func(name grade.StageName) bool { return !slices.Contains(stages, name) }) && len(seen) > 0 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (k *killMatrix) print(all []corpus.Mutant) {
	stages := []grade.StageName{grade.Gate, grade.Compile, grade.Directed, grade.OwnCalls, grade.Random, grade.Outside, grade.Heap, grade.Memcheck, grade.Sanitizers, grade.Rules}
	for i, name := range stages {
		fmt.Printf("%*s%s\n", 8+3*i, "", name)
	}
	for _, m := range all {
		fmt.Printf("%-8s", m.ID)
		for _, name := range stages {
			mark := "."
			if slices.Contains(k.seen[m.ID], name) {
				mark = "X"
			}
			fmt.Printf("%-3s", mark)
		}
		fmt.Printf(" %s %s\n", m.What, m.Kind)
	}
	for _, name := range stages {
		sees := 0
		for _, seen := range k.seen {
			if slices.Contains(seen, name) {
				sees++
			}
		}
		fmt.Printf("%s: %d seen, %d by nothing else: %s\n", name, sees, len(k.caughtOnlyBy(name)), strings.Join(k.caughtOnlyBy(name), " "))
	}
}
