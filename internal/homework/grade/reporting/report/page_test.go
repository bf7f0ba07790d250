package report_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade"
	"llmmemory/internal/homework/grade/judging/compare"
	"llmmemory/internal/homework/grade/judging/rules"
	"llmmemory/internal/homework/grade/reporting/class"
	"llmmemory/internal/homework/grade/reporting/report"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

func init() { level.CollectLess() }

// run runs the tests. Those in a browser replace it.
var run = (*testing.M).Run

func TestMain(m *testing.M) {
	rules.Serve()
	os.Exit(run(m))
}

var mutants = strings.Fields("A1 A8 A17 A19 C26 C30 C38 D5 D7 F1 F7 F9 I8 I11 K3 K14 R14 X1")

// hostile is a submission whose source and name contain markup.
const (
	hostile     = "hostile"
	hostileText = "int x = \"</code></pre></style><script>document.title = 'caught'</script><img src=x onerror=alert(1)>\";\n"
	hostileName = `<script>document.title = "caught"</script>"'&#50%?/../Zoë`
)

var update = flag.Bool("update", false, "grade the submissions and write testdata/reports.json.gz")

const reportsFile = "testdata/reports.json.gz"

var stored map[string]*grade.Report

// reports returns the reports of the correct submission, of some mutants, and of the hostile submission. They are
// stored in testdata, because grading takes a minute of processor time; make exhaustive grades them again.
func reports(t *testing.T) map[string]*grade.Report {
	t.Helper()
	if stored != nil {
		return stored
	}
	if *update || level.Exhaustive() {
		stored = graded(t)
	} else {
		f, err := os.Open(reportsFile)
		require.NoError(t, err)
		defer f.Close()
		z, err := gzip.NewReader(f)
		require.NoError(t, err)
		require.NoError(t, json.NewDecoder(z).Decode(&stored))
	}
	if *update {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		require.NoError(t, errors.Join(json.NewEncoder(z).Encode(stored), z.Close()))
		require.NoError(t, os.WriteFile(reportsFile, b.Bytes(), 0o644))
	}
	return stored
}

func graded(t *testing.T) map[string]*grade.Report {
	t.Helper()
	g, err := grade.NewGrader()
	require.NoError(t, err)
	defer g.Close()
	sources := map[string]string{"correct": corpus.Correct(t), hostile: hostileText + corpus.Correct(t)}
	for _, id := range mutants {
		sources[id] = corpus.Source(t, id)
	}
	dir, all := t.TempDir(), map[string]*grade.Report{}
	for id, source := range sources {
		file := filepath.Join(dir, id+".c")
		require.NoError(t, os.WriteFile(file, []byte(source), 0o644))
		all[id], err = g.File(file)
		require.NoError(t, err)
		all[id].File = id + ".c"
	}
	return all
}

func page(t *testing.T, writer interface{ Write(io.Writer) error }) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, writer.Write(&b))
	return b.String()
}

func student(t *testing.T, r *grade.Report, name string) string { return page(t, entry(name, "", r)) }

func classPage(t *testing.T, entries ...report.Entry) string {
	return page(t, report.Class{Entries: entries})
}

func entry(name, file string, r *grade.Report) report.Entry {
	result := &class.Result{Submission: class.Submission{Name: name, File: name + ".c"}, Report: r}
	if r == nil {
		result.Err = errors.New("read the submission: no such file")
	}
	return report.Entry{Result: result, File: file}
}

// A document has what the tests check of an HTML page. The function parse makes it, and requires that the page is
// well-formed XML.
type document struct {
	text  string // without what is in <style> and <script>
	ids   []string
	links []string
	tags  map[string]int
}

func parse(t *testing.T, html string) document {
	t.Helper()
	d := document{tags: map[string]int{}}
	decoder := xml.NewDecoder(strings.NewReader(html))
	var open []string
	heading := 0
	for {
		token, err := decoder.Token()
		if err == io.EOF {
			break
		}
		require.NoError(t, err, "not well-formed")
		switch token := token.(type) {
		case xml.StartElement:
			name := token.Name.Local
			open = append(open, name)
			d.tags[name]++
			if level := slices.Index([]string{"h1", "h2", "h3", "h4", "h5"}, name) + 1; level > 0 {
				require.LessOrEqual(t, level, heading+1, "a level of headings is left out before %s", name)
				heading = level
			}
			for _, a := range token.Attr {
				require.False(t, strings.HasPrefix(a.Name.Local, "on"), "%s=%s", a.Name.Local, a.Value)
				require.NotContains(t, []string{"src", "srcset", "data"}, a.Name.Local)
				switch a.Name.Local {
				case "id":
					require.NotContains(t, d.ids, a.Value, "twice")
					d.ids = append(d.ids, a.Value)
				case "href":
					d.links = append(d.links, a.Value)
				}
			}
			if name == "th" {
				require.True(t, slices.ContainsFunc(token.Attr, func(a xml.Attr) bool { return a.Name.Local == "scope" }))
			}
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 && (open[len(open)-1] == "style" || open[len(open)-1] == "script") {
				require.NotContains(t, string(token), "url(")
				require.NotContains(t, string(token), "@import")
				continue
			}
			d.text += string(token)
		}
	}
	d.requireWhole(t)
	return d
}

// requireWhole requires the parts that every page has. It also requires that the page loads nothing from elsewhere.
func (d *document) requireWhole(t *testing.T) {
	t.Helper()
	require.LessOrEqual(t, d.tags["script"], 1) // of the class
	for _, none := range []string{"link", "img", "iframe", "object", "embed", "form"} {
		require.Zero(t, d.tags[none], none)
	}
	for _, one := range []string{"h1", "main", "header", "nav", "title", "style"} {
		require.Positive(t, d.tags[one], one)
	}
	require.Equal(t, 1, d.tags["h1"])
	require.Equal(t, 1, d.tags["main"])
	for _, link := range d.links {
		if id, own := strings.CutPrefix(link, "#"); own {
			require.Contains(t, d.ids, id, "a link leads nowhere")
		}
	}
	for _, words := range []string{"all passed", "all tests passed"} { // some are hidden
		require.NotContains(t, strings.ToLower(d.text), words)
	}
}

func TestEveryReportIsAWholePage(t *testing.T) {
	for id, r := range reports(t) {
		d := parse(t, student(t, r, id))
		require.Contains(t, d.text, fmt.Sprintf("of %g points", r.MaxScore))
		for i, f := range r.Findings {
			require.Contains(t, d.ids, fmt.Sprintf("finding-%d", i+1))
			for _, text := range append([]string{f.Sentence, f.Field, f.Expected, f.Actual}, f.Lines...) {
				require.Contains(t, d.text, text)
			}
			for _, name := range f.Same {
				require.Contains(t, d.text, name)
			}
			if f.Scene != nil {
				require.Contains(t, d.text, "actual after "+f.Op.Kind.Function())
			}
			if len(f.Ops) > 0 {
				require.Contains(t, d.text, "int main(void)")
				require.Contains(t, d.text, "llmgrade --replay mistake-")
				require.Contains(t, d.text, f.Op.String()+"\n")
			}
		}
		for _, test := range r.Tests {
			require.Contains(t, d.text, test.Name)
		}
		for _, a := range r.Advice {
			require.Contains(t, d.text, a.Text)
		}
		for _, n := range r.Notes {
			require.Contains(t, d.text, n)
		}
		require.Contains(t, d.text, r.Setting.GCC)
		require.Contains(t, d.text, r.Setting.Linker)
		require.Contains(t, d.text, fmt.Sprint("seed ", r.Seed))
	}
}

func TestAPageDescribesAMistake(t *testing.T) {
	d := parse(t, student(t, reports(t)["A1"], "A1"))
	text := words(d.text)
	for _, says := range []string{
		"After append_kv, engine->ref_count[0] is 2, but has to be 1",
		"The handout says: Yes, if the L2 slot is mapped but ref_count > 1",
		"expected 1 ✗ your program 2",
		"append_kv(e[0], 1, 1) ← here it goes wrong",
		"gdb -ex 'break append_kv' -ex run ./this",
		"append_kv returns 0, but this call must return -1 without changing anything",
	} {
		require.Contains(t, text, says)
	}
	require.Equal(t, len(reports(t)["A1"].Findings), d.tags["figure"])
}

// Ensure that a page describes the grader's own writes to memory, and states the size of a large pool.
func TestAPageDescribesTheTestersOwnSteps(t *testing.T) {
	for step, says := range map[string]string{
		"init e0 64 3072": "(a pool of 3 GiB: offsets in it do not fit in an int)", "init e0 640": "(a pool of 10 blocks)",
		"count e0 1 16": "(the tester sets kv_count)", "place e0 1 1 5": "(the tester maps", "map e0 1 9": "(the tester maps", "share e0 1 2 9": "(the tester maps",
		"table e0 1 5": "(the tester adds", "hole e0 1 3": "(the tester unmaps", "move e0 1 9 0": "(the tester makes", "relocate e0 1 2": "(the tester moves",
		"rename e0 1 5": "(the tester gives", "unlink e0 1": "(the tester takes",
	} {
		ops, err := trace.Parse(step)
		require.NoError(t, err)
		r := *reports(t)["correct"]
		r.Findings = []grade.Finding{{Name: "x", Task: 4, Ops: ops, Difference: &compare.Difference{Op: ops[0], Channel: compare.Pool}}}
		require.Contains(t, words(parse(t, student(t, &r, "step")).text), says, step)
	}
}

func TestWhatWasNotRunSaysWhy(t *testing.T) {
	r := reports(t)["C38"]
	require.NotNil(t, r.Rejected)
	d := parse(t, student(t, r, "C38"))
	require.Contains(t, d.ids, "rejected")
	require.Contains(t, d.text, r.Rejected.Text)
	require.Contains(t, d.text, "-Werror -O2 -ggdb -c llm_memory.c")
}

func TestNothingOfASubmissionBecomesMarkup(t *testing.T) {
	r := *reports(t)[hostile]
	require.NotNil(t, r.Rejected)
	d := parse(t, student(t, &r, hostileName))
	require.Contains(t, d.text, hostileName)
	require.Contains(t, d.text, "<script>document.title = 'caught'</script>")

	r = *reports(t)["A1"]
	r.Findings = slices.Clone(r.Findings)
	f := &r.Findings[0]
	difference, scene, actual := *f.Difference, *f.Scene, *f.Scene.Actual
	const evil = "</desc></svg></pre><script>alert(1)</script>"
	f.Name, f.Sentence, f.Stage, f.Lines, f.Same = evil, evil, evil, []string{evil}, []string{evil}
	difference.Field, difference.Expected, difference.Actual, actual.Broken = evil, evil, evil, evil
	scene.Actual, f.Scene, f.Difference = &actual, &scene, &difference
	r.Notes, r.Advice, r.Setting.GCC = []string{evil}, []grade.Advice{{Name: evil, Sentence: evil, Text: evil}}, evil
	r.Tests = append(slices.Clone(r.Tests), grade.Test{Task: 1, Name: evil, Sentence: evil, Status: evil, Why: evil})
	r.Stages = append(slices.Clone(r.Stages), grade.Stage{Name: evil, Tasks: [grade.Tasks]grade.Status{evil}})
	require.GreaterOrEqual(t, strings.Count(parse(t, student(t, &r, evil)).text, evil), 15)
	d = parse(t, classPage(t, entry(evil, evil, &r), entry(evil, "", nil)))
	require.GreaterOrEqual(t, strings.Count(d.text, evil), 5)
}

func TestAPageHasAFindingWithoutADifference(t *testing.T) {
	r := *reports(t)["correct"]
	r.Findings = []grade.Finding{{Name: "null_check", Task: 2, Stage: grade.Rules, Sentence: "MUST check", Lines: []string{"llm_memory.c:7"}}}
	d := parse(t, student(t, &r, "rules"))
	require.Contains(t, d.text, "null_check")
	require.Contains(t, d.text, "llm_memory.c:7")
	parse(t, student(t, &grade.Report{}, "nothing"))
}

func entries(t *testing.T, many int) []report.Entry {
	t.Helper()
	all := reports(t)
	ids := slices.Sorted(maps.Keys(all))
	var class []report.Entry
	for i := range many {
		name := fmt.Sprintf("student %03d", i)
		class = append(class, entry(name, name+".html", all[ids[i%len(ids)]]))
	}
	return class
}

func TestAClassIsInOrderWhateverOrderItIsGivenIn(t *testing.T) {
	all := entries(t, 30)
	want := classPage(t, all...)
	slices.Reverse(all)
	require.Equal(t, want, classPage(t, all...))
	d := parse(t, want)
	require.Less(t, strings.Index(d.text, "To look at"), strings.Index(d.text, "student 000"))
	require.Regexp(t, regexp.MustCompile(`student 000[\s\S]*student 001`), d.text[strings.LastIndex(d.text, "Mistakes"):])
}

func TestAClassMayBeSmallOrLarge(t *testing.T) {
	level.SkipQuick(t)
	parse(t, classPage(t))
	parse(t, classPage(t, entry("nobody", "", nil)))
	one := parse(t, classPage(t, entries(t, 1)...))
	require.Contains(t, one.text, "1 submission,")
	large := classPage(t, entries(t, 500)...)
	parse(t, large)
	require.Less(t, len(large), 400_000, "bytes")
}

func TestSentencesAreRankedByStudents(t *testing.T) {
	all := reports(t)
	common := all["F1"].Findings[0].Sentence
	d := parse(t, classPage(t, entry("ada", "ada.html", all["F1"]), entry("bob", "bob.html", all["F1"]), entry("cy", "cy.html", all["A8"])))
	text := words(d.text)
	require.Contains(t, text, "2 students: "+common)
	require.Less(t, strings.Index(text, "2 students: "), strings.Index(text, "1 student: "+all["A8"].Findings[0].Sentence))
	require.Contains(t, d.links, "ada.html#finding-1")
}

func TestTimesAreMedianAndLongest(t *testing.T) {
	var class3 []report.Entry
	for i, d := range []time.Duration{time.Second, 5 * time.Second, 2 * time.Second} {
		class3 = append(class3, entry(fmt.Sprint(i), "", &grade.Report{MaxScore: 1, Time: 2 * d, Stages: []grade.Stage{{Name: grade.Heap, Time: d}}}))
	}
	text := words(strings.ReplaceAll(classPage(t, class3...), "<", " <"))
	require.Regexp(t, `heap.*>3 .*>2\.00 s .*>5\.00 s .*everything.*>4\.00 s .*>10\.00 s `, text)
}

// 99.99 of 100 points are not full marks.
func TestFullMarksAreABarOfTheirOwn(t *testing.T) {
	html := classPage(t, entry("a", "", &grade.Report{Score: 99.99, MaxScore: 100}), entry("b", "", &grade.Report{Score: 100, MaxScore: 100}),
		entry("c", "", &grade.Report{Score: 10, MaxScore: 100}))
	require.Contains(t, html, "<desc>10 to below 20 percent: 1; 90 to below 100 percent: 1; full marks: 1</desc>")
}
