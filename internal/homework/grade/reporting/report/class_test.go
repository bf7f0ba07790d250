package report_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/grade"
	"llmmemory/internal/homework/grade/reporting/class"
	"llmmemory/internal/homework/grade/reporting/report"
)

// everything is a class with something in every section.
func everything(t *testing.T) report.Class {
	t.Helper()
	all := reports(t)
	points := 90.0
	rejected := func(stage grade.StageName, text string) *grade.Report {
		return &grade.Report{MaxScore: 100, Rejected: &grade.Rejection{Stage: stage, Text: text}}
	}
	c := report.Class{
		Entries: []report.Entry{
			entry("ada", "ada.html", all["correct"]),
			entry("bob", "bob.html", all["F1"]),
			entry("cy", "cy.html", all["F1"]),
			entry("dan", "dan.html", all["A1"]),
			entry("eve", "eve.html", rejected(grade.Gate, "eve.c is not run: llm_memory.c:11: __asm__ is assembly code: write C")),
			entry("flo", "flo.html", rejected(grade.Compile, "flo.c does not compile:\nllm_memory.c: In function 'f':\nllm_memory.c:9:9: error: expected expression\n   9 |")),
			entry("gus", "gus.html", rejected(grade.NoFile, "it is an archive: unpack it")),
			entry("hal", "", nil),
			entry("ian", "ian.html", rejected(grade.Gate, "ian.c is not run: llm_memory.c:1: a carriage return within a line")),
		},
		Unknown: []string{"ghost"}, Gone: []string{"ivy"},
	}
	c.Entries[8].Report.Rejected.Form = true
	c.Entries[3].Override = &class.Override{Student: "dan", Points: &points, Comment: "a typo, agreed"}
	c.Entries[1].Before = &class.Outcome{Score: 10.5, MaxScore: 100, Failed: append(all["F1"].Failed(), "task9_old"), Rules: "1.old"}
	c.Entries[1].Graded = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	c.Entries[0].Before = class.OutcomeOf(all["correct"]) // graded again, the same
	return c
}

func words(text string) string { return strings.Join(strings.Fields(text), " ") }

func TestTheClassPageTellsEverything(t *testing.T) {
	d := parse(t, page(t, everything(t)))
	text := words(d.text)
	for _, says := range []string{
		"9 submissions, half of those graded", "5 to look at",
		"Refused: attacks, or what looks like one (1)", "eve: llm_memory.c:11: __asm__ is assembly code: write C",
		"Refused: the form of the file (1)", "ian: llm_memory.c:1: a carriage return",
		"Could not be graded (1)", "hal: read the submission: no such file",
		"Does not compile (1)", "flo: llm_memory.c:9:9: error: expected expression",
		"Nothing to grade (1)", "gus: it is an archive: unpack it",
		"staff decided: a typo, agreed",
		"90graded " + fmt.Sprint(reports(t)["A1"].Score),
		"overrides.csv names 1 student of no submission: ghost.",
		"bob: 10.5 → " + fmt.Sprint(reports(t)["F1"].Score), "on 2026-11-21 12:00 UTC, by other rules", "now passes: task9_old",
		"Graded before, and not in the class any more: ivy.",
		"2 students, task 2: ", "free e0",
	} {
		require.Contains(t, text, words(says), says)
	}
	require.Less(t, strings.Index(text, "Refused: attacks"), strings.Index(text, "Could not be graded"))
	require.NotContains(t, text, "ada: 100 →", "nothing changed")
}

func TestPassRatesAreOfTheSubmissionsThatWereRun(t *testing.T) {
	test := func(name string, s grade.Status) grade.Test {
		return grade.Test{Task: 1, Name: name, Part: grade.PartDirected, Status: s}
	}
	d := parse(t, page(t, report.Class{Entries: []report.Entry{
		entry("a", "", &grade.Report{Tests: []grade.Test{test("easy", grade.Passed), test("hard", grade.Failed)}}),
		entry("b", "", &grade.Report{Tests: []grade.Test{test("easy", grade.Passed), test("hard", grade.NotRun)}}),
		entry("c", "", &grade.Report{Tests: []grade.Test{test("easy", grade.Passed), test("hard", grade.Passed)}}),
		entry("d", "", &grade.Report{Rejected: &grade.Rejection{Stage: grade.Compile}}),
	}}))
	require.Regexp(t, `hard1 of 3\s+easy3 of 3`, d.text)
}

func TestOnlyTheSameMistakeOfSeveralStudentsIsGrouped(t *testing.T) {
	all := reports(t)
	d := parse(t, classPage(t, entry("a", "a.html", all["F1"]), entry("b", "b.html", all["A8"]), entry("c", "c.html", all["A1"])))
	require.NotContains(t, d.ids, "mistakes")
	require.Contains(t, parse(t, page(t, everything(t))).ids, "mistakes")
}

func TestControlCharactersNeverReachAPage(t *testing.T) {
	const name = "a\x1b[31m\x00\r\u202e\u009b\xffb"
	r := *reports(t)["A1"]
	r.Notes = []string{name}
	e := entry(name, "", &r)
	e.Override = &class.Override{Comment: name}
	trouble := entry("x", "", nil)
	trouble.Err = errors.New(name)
	for _, text := range []string{student(t, &r, name), page(t, report.Class{Entries: []report.Entry{e, trouble}, Gone: []string{name}})} {
		require.NotRegexp(t, `[\x00-\x08\x0b-\x1f\x7f\x{80}-\x{9f}\x{202e}]`, text)
		require.Contains(t, text, `a\x1b[31m`)
	}
}

func TestAStudentsPageHasWhatStaffDecided(t *testing.T) {
	points := 90.5
	r := reports(t)["A1"]
	e := entry("dan", "", r)
	e.Override = &class.Override{Points: &points, Comment: "agreed <b>"}
	text := words(parse(t, page(t, e)).text)
	require.Contains(t, text, "90.5 of 100 points Staff: agreed <b> (llmgrade gave "+fmt.Sprint(r.Score)+".)")
}

// Ensure that an entry without a report gets a page. The page gives the reason for the missing report.
func TestAnEntryThatWasNotGradedHasAPage(t *testing.T) {
	points := 12.5
	for _, c := range []struct {
		name     string
		override *class.Override
		says     string
	}{
		{"nobody has decided", nil, "was not graded, because the grader failed"},
		{"staff gave points", &class.Override{Points: &points, Comment: "by hand"}, "<strong>12.5</strong> points"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := page(t, report.Entry{Result: &class.Result{Submission: class.Submission{Name: "ada\x1b"}, Err: errors.New("no <memory>\x1b left"), Override: c.override}})
			require.Contains(t, text, c.says)
			require.Contains(t, text, "no &lt;memory&gt;")
			require.NotContains(t, text, "\x1b")
			require.Equal(t, c.override != nil, strings.Contains(text, "</strong> points"))
		})
	}
}
