package class_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/grade"
	"llmmemory/internal/homework/grade/judging/compare"
	"llmmemory/internal/homework/grade/reporting/class"
	"llmmemory/internal/testkit/level"
)

func init() { level.CollectLess() }

func TestAReportIsReadBackOrMadeAnew(t *testing.T) {
	f, err := class.NewFolder(t.TempDir())
	require.NoError(t, err)
	r := &grade.Report{File: "x.c", Score: 7, Rejected: &grade.Rejection{Stage: grade.Gate, Text: "why"}}
	for _, name := range []string{"ada", "ä/../b c", "..", "index", "Ada", "caf\xe9", "caf=E9"} {
		require.NoError(t, f.Save(name, "key", r))
		got, found := f.Load(name, "key")
		require.True(t, found, name)
		require.Equal(t, r, got)
		_, found = f.Load(name, "another key")
		require.False(t, found)
	}
	files, err := filepath.Glob(filepath.Join(f.Path, "reports", "*"))
	require.NoError(t, err)
	require.Len(t, files, 7)
	require.NoError(t, os.WriteFile(files[0], []byte("{"), 0o644)) // cut off
	all := 0
	for _, name := range []string{"ada", "ä/../b c", "..", "index", "Ada"} {
		if _, found := f.Load(name, "key"); found {
			all++
		}
	}
	require.Equal(t, 4, all)
	require.NoError(t, os.Rename(filepath.Join(f.Path, "reports", "index.json"), filepath.Join(f.Path, "reports", "bob.json")))
	_, found := f.Load("bob", "key")
	require.False(t, found, "it is another student's")
}

func TestFoldersAreMerged(t *testing.T) {
	save := func(name, key string) string {
		f, err := class.NewFolder(t.TempDir())
		require.NoError(t, err)
		require.NoError(t, f.Save(name, key, &grade.Report{File: name}))
		return f.Path
	}
	a, b, again, other := save("a", "1"), save("b\xff", "1"), save("a", "1"), save("a", "2")
	empty, err := class.NewFolder(t.TempDir())
	require.NoError(t, err)
	trouble, err := class.NewFolder(t.TempDir())
	require.NoError(t, err)
	for _, name := range []string{"a", "c"} {
		require.NoError(t, trouble.SaveTrouble(class.Result{Submission: class.Submission{Name: name, File: "c.c"}, Err: errors.New("no gcc"), Rules: "2.a"}))
	}
	target, err := class.NewFolder(t.TempDir())
	require.NoError(t, err)
	all, err := target.Merge([]string{trouble.Path, b, a, again, empty.Path})
	require.NoError(t, err)
	require.Len(t, all, 3)
	require.Equal(t, "a", all[0].Name)
	require.NotNil(t, all[0].Report)
	require.Equal(t, "b\xff", all[1].Name)
	require.EqualError(t, all[2].Err, "no gcc") // nobody is lost
	require.Equal(t, "2.a", all[2].Rules)
	_, found := target.Load("b\xff", "1")
	require.True(t, found)
	_, err = target.Merge([]string{other})
	require.ErrorIs(t, err, class.ErrTwice)
	_, err = target.Merge([]string{t.TempDir()})
	require.ErrorContains(t, err, "no reports in it")
}

func TestALongNameHasItsOwnFiles(t *testing.T) {
	f, err := class.NewFolder(t.TempDir())
	require.NoError(t, err)
	names := []string{strings.Repeat("n", 255), strings.Repeat("n", 254) + "m", strings.Repeat("ü", 127), strings.Repeat("\x01", 255)}
	for _, name := range names {
		require.NoError(t, f.Save(name, "key", &grade.Report{File: name}))
		require.LessOrEqual(t, len(filepath.Base(class.Page(name))), 255)
		require.NoError(t, os.WriteFile(filepath.Join(f.Path, class.Page(name)), nil, 0o644))
	}
	target, err := class.NewFolder(t.TempDir())
	require.NoError(t, err)
	all, err := target.Merge([]string{f.Path})
	require.NoError(t, err)
	var merged []string
	for _, r := range all {
		merged = append(merged, r.Name)
	}
	require.ElementsMatch(t, names, merged)
}

func TestAReportRemembersTheOneBefore(t *testing.T) {
	f, err := class.NewFolder(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, f.Save("ada", "1", &grade.Report{Score: 5, MaxScore: 10, Rules: "2.a"}))
	before, _ := f.Before("ada")
	require.Nil(t, before)
	require.NoError(t, f.SaveTrouble(class.Result{Submission: class.Submission{Name: "ada"}, Err: errors.New("no gcc")}))
	require.NoError(t, f.Save("ada", "2", &grade.Report{Score: 7, MaxScore: 10}))
	before, when := f.Before("ada")
	require.Equal(t, &class.Outcome{Score: 5, MaxScore: 10, Failed: []string{}, Rules: "2.a"}, before)
	require.False(t, when.IsZero())
	require.Equal(t, []string{"ada"}, f.Gone(nil))
	require.Empty(t, f.Gone([]class.Result{{Submission: class.Submission{Name: "ada"}}}))
}

// Ensure that a report of an earlier llmgrade can be read. Its scenes are stored in another form and are ignored.
func TestAReportOfAnEarlierVersionIsRead(t *testing.T) {
	f, err := class.NewFolder(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(f.Path, "reports", "ada.json"), []byte(`{"Name": "ada", "Key": "1", "Report": {"Score": 5, "Findings": [
		{"Name": "task4_copies", "Scene": {"Block": 3, "Before": {"Total": 1, "Sequences": [{"ID": 1, "Tables": [{"Slot": 0, "Blocks": [0, -1]}]}]}}}]}}`), 0o644))
	r, found := f.Load("ada", "1")
	require.True(t, found)
	require.Equal(t, "task4_copies", r.Findings[0].Name)
	require.Equal(t, compare.Scene{}, *r.Findings[0].Scene)
}

func TestASpreadsheetReadsTheGrades(t *testing.T) {
	r := &grade.Report{File: "=x.c", Score: 19, MaxScore: 40, Rules: "2.b", Tests: []grade.Test{
		{Task: 1, Name: "one", Score: 10, MaxScore: 20}, {Task: 4, Name: "two", Score: 9, MaxScore: 20}}}
	rejected := &grade.Report{File: "b\x1b[31m.c", MaxScore: 40, Rules: "2.b", Header: "its header", Rejected: &grade.Rejection{Stage: grade.Compile, Text: "+b.c: error: 1\x1b[0m\nmore"}}
	points := 30.0
	var b bytes.Buffer
	require.NoError(t, class.WriteCSV(&b, []class.Result{
		{Submission: class.Submission{Name: `=cmd|"calc", a`}, Report: r, Override: &class.Override{Points: &points, Comment: "@late,\nagreed"}, Same: []string{"c"}},
		{Submission: class.Submission{Name: "b\u202e\xff\n"}, Report: rejected},
		{Submission: class.Submission{Name: "c", File: "c.c"}, Err: errors.New("no gcc"), Rules: "2.b"}}))
	require.Equal(t, "name,file,score,max_score,task1,task2,task3,task4,task5,rejected,failed,seconds,trouble,reason,rules,graded_score,comment,notes\n"+
		`"'=cmd|""calc"", a",'=x.c,30.00,40.00,10.00,0.00,0.00,9.00,0.00,,one two,0.00,,,2.b,19.00,"'@late, agreed",the same file as that of c`+"\n"+
		`b\u202e\xff\x0a,b\x1b[31m.c,0.00,40.00,0.00,0.00,0.00,0.00,0.00,compile,compile,0.00,,'+b.c: error: 1\x1b[0m,2.b,0.00,,its header`+"\n"+
		"c,c.c,,,,,,,,,,,no gcc,,2.b,,,\n", b.String())
}
