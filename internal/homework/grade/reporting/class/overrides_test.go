package class_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/grade"
	"llmmemory/internal/homework/grade/reporting/class"
)

func TestOverridesAreReadOrSayWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ name, text, wantErr string }{
		{"fine", "student,points,comment\nada,87.5,\"late, but agreed\"\n'=x,0,\nbob,,see me\n", ""},
		{"with a byte order mark", "\ufeffStudent,Points,Comment\r\nada,1,\r\n", ""},
		{"empty", "", ""},
		{"no head", "ada,1,x\n", "the first line has to be student,points,comment"},
		{"semicolons", "student;points;comment\n", "the first line has to be student,points,comment"},
		{"a comma in a comment", "student,points,comment\nada,1,late, but agreed\n", "line 2 has 4 fields"},
		{"no number", "student,points,comment\nada,1,\nbob,full,x\n", `line 3: the points of bob are "full", not a number from 0 up`},
		{"negative", "student,points,comment\nada,-1,x\n", `"-1", not a number`},
		{"not finite", "student,points,comment\nada,NaN,x\n", `"NaN", not a number`},
		{"twice", "student,points,comment\nada,1,\nbob,1,\nada,2,\n", "line 4: ada stands in line 2 already"},
		{"twice, in two spellings", "student,points,comment\nj\u00f6rg,1,\njo\u0308rg,2,\n", "line 3: jo\u0308rg stands in line 2 already"},
		{"twice, as a spreadsheet keeps it", "student,points,comment\n=x,1,\n'=x,2,\n", "line 3: '=x stands in line 2 already"},
		{"nobody", "student,points,comment\n,1,\n", "line 2 names no student"},
		{"nothing", "student,points,comment\nada,,\n", "line 2 has neither points nor a comment"},
		{"quotation mark", "student,points,comment\nada,1,\"open\n", "parse error on line 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := class.Folder{Path: t.TempDir()}
			require.NoError(t, os.WriteFile(filepath.Join(f.Path, "overrides.csv"), []byte(c.text), 0o644))
			_, err := f.Overrides()
			if c.wantErr == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, class.ErrOverrides)
			require.ErrorContains(t, err, c.wantErr)
			require.ErrorContains(t, err, "overrides.csv")
		})
	}
	none, err := class.Folder{Path: t.TempDir()}.Overrides()
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestOverridesCountInPlaceOfTheGradersScore(t *testing.T) {
	points := 3.5
	all := class.Overrides{{Student: "ada", Points: &points}, {Student: "'=x", Comment: "see me"}, {Student: "jörg", Comment: "late"}, {Student: "nobody", Points: &points}}
	results := []class.Result{
		{Submission: class.Submission{Name: "ada"}, Err: errors.New("no gcc")},
		{Submission: class.Submission{Name: "=x"}, Report: &grade.Report{Score: 1, MaxScore: 2}},
		{Submission: class.Submission{Name: "jo\u0308rg"}, Report: &grade.Report{}}, // as a Mac's archive has it
	}
	unknown, err := all.Apply(results)
	require.NoError(t, err)
	require.ErrorContains(t, unknown.Unknown(), "there is no student nobody in this class")
	require.Len(t, unknown, 1)
	require.NoError(t, class.Overrides{}.Unknown())
	score, known := results[0].Score()
	require.True(t, known)
	require.Equal(t, 3.5, score)
	score, _ = results[1].Score()
	require.Equal(t, 1.0, score)
	require.Equal(t, "see me", results[1].Override.Comment)
	require.Equal(t, "late", results[2].Override.Comment)

	results[0].Report = &grade.Report{MaxScore: 3}
	_, err = all.Apply(results)
	require.ErrorContains(t, err, "ada gets 3.5 points, which is more than the 3 there are")
}
