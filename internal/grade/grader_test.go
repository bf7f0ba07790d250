package grade_test

import (
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

	"llmmemory/internal/grade"
	"llmmemory/internal/grade/compare"
	"llmmemory/internal/grade/rules"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

const submissions = "../../testdata/submissions/"

// TestMain serves as the reader of static rules. A call that never returns has a fourth of its
// processor time here.
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

// graders has the graders of all tests, by their flags, so that each runner is compiled once.
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
	if !level.Long() && !*matrix && *repeats == 0 {
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

// put writes a mutant into a new folder and returns its path.
func put(t *testing.T, m corpus.Mutant) string {
	t.Helper()
	source, err := m.Apply(corpus.Correct(t))
	require.NoError(t, err)
	return putText(t, source)
}

// putText writes a submission into a new folder and returns its path.
func putText(t *testing.T, source string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "llm_memory.c")
	require.NoError(t, os.WriteFile(file, []byte(source), 0o644))
	return file
}

var matrix = flag.Bool("matrix", false, "print which stage sees which mutant")

// Ensure that every wrong submission of the table loses points in its task, with a sentence of
// the handout, and that no equivalent one does. With -matrix, or in make test-long, every mutant
// goes through every stage; otherwise one of each kind and task, and a mutant that a directed
// trace of its task detects goes no further.
func TestNothingWrongPassesAndNothingRightFails(t *testing.T) {
	level.SkipQuick(t)
	g := newGrader(t)
	g.Tries, g.AllStages = 0, *matrix || level.Long()
	optimizing := newGrader(t, "-O2") // only then does the compiler see some mistakes
	kills := &killMatrix{seen: map[string][]grade.StageName{}}
	t.Run("every mutant", func(t *testing.T) {
		all := mutants(t)
		if !g.AllStages {
			all = typicalOf(all)
		}
		for _, m := range all {
			t.Run(m.ID, func(t *testing.T) {
				t.Parallel()
				file := put(t, m)
				if task := taskOf(m); task != 0 && !g.AllStages && m.Kind == corpus.Wrong && seenByDirected(t, g, file, task) {
					return
				}
				g := g
				if m.Kind == corpus.Rejected {
					g = optimizing
				}
				r, err := g.File(file)
				require.NoError(t, err)
				kills.add(m, r)
				requireDeserved(t, m, r)
			})
		}
	})
	if *matrix {
		kills.print(mutants(t))
	}
	// The random traces detect nothing that those with writes from outside do not; they are there
	// because everything that they show is the student's own work. Static rules detect what is
	// forbidden whatever its effect, and name its line.
	if len(kills.seen) < len(mutants(t)) {
		return // only some were graded in every stage
	}
	for _, stages := range [][]grade.StageName{{grade.Directed}, {grade.Heap}, {grade.Memcheck}, {grade.Sanitizers}} {
		if only := kills.only(stages...); len(only) == 0 {
			t.Errorf("the stages %q see nothing that no others do", stages)
		}
	}
}

// typicalOf returns the first mutant for each task and kind. grader/suite runs more of them in
// every run.
func typicalOf(all []corpus.Mutant) (first []corpus.Mutant) {
	seen := map[string]bool{}
	for _, m := range all {
		same := fmt.Sprint(m.Kind, taskOf(m))
		if !seen[same] {
			seen[same] = true
			first = append(first, m)
		}
	}
	return first
}

// seenByDirected plays only the directed traces of a task.
func seenByDirected(t *testing.T, g *grade.Grader, file string, task int) bool {
	t.Helper()
	directed := *g
	directed.Only = fmt.Sprintf("task%d_", task)
	r, err := directed.File(file)
	require.NoError(t, err)
	requireSentences(t, r)
	return failsIn(r, task)
}

// requireDeserved checks the report of a mutant that went through the stages.
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
		requireSentences(t, r)
		if task := taskOf(m); task != 0 {
			require.True(t, failsIn(r, task), "%s belongs to task %d, but these failed: %v", m.What, task, r.Failed())
		}
	}
}

func requireSentences(t *testing.T, r *grade.Report) {
	t.Helper()
	for _, f := range r.Findings {
		require.NotEmpty(t, f.Sentence, f.Name)
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

// taskOf returns the task of the handout that a mutant breaks, from the name of the test that
// must detect it; 0: not a single one.
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

// A killMatrix has the stages that detect each mutant.
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

// only lists the mutants that no other stages detect.
func (k *killMatrix) only(stages ...grade.StageName) (ids []string) {
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
		fmt.Printf("%s: %d seen, %d by nothing else: %s\n", name, sees, len(k.only(name)), strings.Join(k.only(name), " "))
	}
}
