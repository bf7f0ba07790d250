package report_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/homework/course"
	"llmmemory/internal/homework/course/oracle"
	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/judging/compare"
	"llmmemory/internal/homework/grade/reporting/report"
)

// What the first finding of a mutant has to show.
var goldens = []struct {
	mutant string
	width  int
	shows  string
}{
	{"A1", 40, "wrong: ref_count[0] is 2, but has to"},
	{"A8", 80, "wrong: record 4 of block"},
	{"A17", 80, "block_table[1] is a table, but has to be NULL"},
	{"A19", 80, "block_table[0–15] →0–255"},
	{"D5", 80, "wrong: llm_destroy does not return: it uses a pointer that it reads from freed"},
	{"F9", 80, "active_seqs: head → ?"},
	{"I11", 80, "before llm_init: no engine yet"},
	{"K14", 80, "block_table[1–15] is a table, but has to be NULL"},
}

func TestWhatMutantsDidIsDrawn(t *testing.T) {
	for _, g := range goldens {
		t.Run(g.mutant, func(t *testing.T) {
			f := reports(t)[g.mutant].Findings[0]
			text := report.Drawing(f.Scene, f.Difference, g.width, false)
			require.Contains(t, text, g.shows)
			golden(t, g.mutant+".txt", text)
			sound(t, f.Scene, f.Difference, widths...)
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "drawings", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "go test ./internal/homework/grade/reporting/report -update writes it anew")
}

var widths = []int{0, 1, 40, 57, 80, 200} // of a terminal

func sound(t require.TestingT, s *compare.Scene, d *compare.Difference, widths ...int) {
	for _, width := range widths {
		text := report.Drawing(s, d, width, false)
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		maximum := 54
		if width > 0 && width < 60 { // tables have their lines
			maximum += 3 * 4
		}
		require.LessOrEqual(t, len(lines), maximum, "%s", text)
		for _, line := range lines {
			limit := max(40, width)
			if width == 0 {
				limit = 80
			}
			require.LessOrEqual(t, utf8.RuneCountInString(line), limit, "width %d:\n%s", width, text)
			require.True(t, utf8.ValidString(line))
		}
		require.NotRegexp(t, `[*!][-\[0-9a-z]`, text, "no mark looks like an operator of C")
		equalBoxes(t, text)
		coloured := report.Drawing(s, d, width, true)
		for _, code := range []string{"\x1b[1;36m", "\x1b[1;31m", "\x1b[0m"} {
			coloured = strings.ReplaceAll(coloured, code, "")
		}
		require.Equal(t, text, coloured, "colour changes nothing but colour")
	}
}

func equalBoxes(t require.TestingT, text string) {
	for line := range strings.Lines(text) {
		_, boxes, found := strings.Cut(strings.TrimSuffix(line, "┐\n"), "┌")
		if !found {
			continue
		}
		all := slices.DeleteFunc(strings.Split(boxes, "┬"), func(box string) bool { return box == "…" })
		for _, box := range all {
			require.Equal(t, utf8.RuneCountInString(all[0]), utf8.RuneCountInString(box), "%s", text)
		}
	}
}

func TestNothingIsDrawnOfNothing(t *testing.T) {
	for _, s := range []*compare.Scene{nil, {}, {Block: -1}} {
		require.Empty(t, report.Drawing(s, nil, 80, true))
	}
}

// Ensure that every scene can be drawn, whether the pool has one block or a thousand, and whatever numbers a
// submission has written.
func TestAnySceneCanBeDrawn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		state := rapid.Custom(drawState)
		s := &compare.Scene{Block: rapid.IntRange(-1, 3).Draw(t, "block")}
		for _, to := range []**compare.State{&s.Before, &s.Expected, &s.Actual} {
			if rapid.IntRange(0, 5).Draw(t, "there") > 0 {
				*to = state.Draw(t, "state")
			}
		}
		if s.Before == nil && s.Expected == nil && s.Actual == nil {
			return
		}
		var d *compare.Difference
		if rapid.Bool().Draw(t, "difference") {
			d = &compare.Difference{Op: trace.Op{Kind: trace.Kind(rapid.IntRange(0, 10).Draw(t, "kind"))}, Channel: compare.Death,
				Field: "<a & b>", Expected: "a return", Actual: strings.Repeat("<&>", rapid.IntRange(0, 60).Draw(t, "long"))}
		}
		sound(t, s, d, rapid.SampledFrom(widths).Draw(t, "width"))
	})
}

func drawState(t *rapid.T) *compare.State {
	number := rapid.OneOf(rapid.Int32Range(-1, 3), rapid.Int32())
	s := &compare.State{
		Total: number.Draw(t, "total"), Free: number.Draw(t, "free"),
		RefCount: make([]int32, rapid.SampledFrom([]int{0, 1, 2, 16, 17, 1000}).Draw(t, "blocks")),
		Records:  rapid.SliceOfN(number, 0, 16).Draw(t, "records"),
		Broken:   rapid.SampledFrom([]string{"", "engine->active_seqs"}).Draw(t, "broken"),
	}
	for range rapid.IntRange(0, 40).Draw(t, "counts") {
		if n := len(s.RefCount); n > 0 {
			s.RefCount[rapid.IntRange(0, n-1).Draw(t, "at")] = number.Draw(t, "count")
		}
	}
	for range rapid.IntRange(0, 16).Draw(t, "sequences") {
		q := oracle.SequenceState{ID: number.Draw(t, "id"), KVCount: number.Draw(t, "kv_count")}
		first := number.Draw(t, "first")
		for slot := range 16 {
			if !rapid.Bool().Draw(t, "table") {
				continue
			}
			q.Tables[slot] = new(course.L2Table)
			for i := range q.Tables[slot] {
				q.Tables[slot][i] = first + int32(i)
				if rapid.IntRange(0, 9).Draw(t, "odd") == 0 {
					q.Tables[slot][i] = number.Draw(t, "entry")
				}
			}
		}
		s.Sequences = append(s.Sequences, q)
	}
	return s
}
