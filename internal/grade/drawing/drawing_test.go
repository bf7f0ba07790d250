package drawing_test

import (
	"encoding/json"
	"encoding/xml"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/course/trace"
	"llmmemory/internal/grade/build"
	"llmmemory/internal/grade/compare"
	"llmmemory/internal/grade/directed"
	"llmmemory/internal/grade/drawing"
	"llmmemory/internal/grade/rules"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

var update = flag.Bool("update", false, "write testdata anew")

func TestMain(m *testing.M) {
	rules.Serve()
	os.Exit(m.Run())
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// scene plays a directed trace on a mutant.
func scene(t *testing.T, kit *build.Kit, id, name string) (*compare.Scene, *compare.Difference) {
	t.Helper()
	const submissions = "../../../testdata/submissions/"
	all, err := corpus.Parse(read(t, submissions+"mutants.txt"))
	require.NoError(t, err)
	i := slices.IndexFunc(all, func(m corpus.Mutant) bool { return m.ID == id })
	require.GreaterOrEqual(t, i, 0)
	source, err := all[i].Apply(read(t, submissions+"correct/llm_memory.c"))
	require.NoError(t, err)
	program, err := kit.Build(id, []byte(source))
	require.NoError(t, err)
	cases, err := directed.Cases()
	require.NoError(t, err)
	i = slices.IndexFunc(cases, func(c directed.Case) bool { return c.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	r, err := compare.Play(program.Native(), cases[i].Ops)
	require.NoError(t, err)
	d := r.First()
	require.NotNil(t, d, "%s shows nothing in %s", id, name)
	s, err := compare.Look(program.Native(), cases[i].Ops, d)
	require.NoError(t, err)
	return s, d
}

// What a mutant does in a trace, and what has to be seen of it.
var goldens = []struct{ mutant, trace, sees string }{
	{"A1", "task4_copies_a_shared_block", "wrong: ref_count[0] is 2, but has to be 1"},
	{"A8", "task4_copies_a_shared_block", "wrong: record 4 of block"},
	{"A17", "task4_oom_allocates_no_table", "wrong: "},
	{"A19", "task4_record_4096_is_the_last", "block_table[0–15] →0–255"},
	{"C30", "task2_appends_to_the_tail", "wrong: place 1 of the list is 2, but has to be 1"},
	{"C26", "task4_takes_the_first_free_block", "wrong: sequence 3: block_table[0][1] is 3, but has to be 0"},
	{"D5", "task5_frees_every_sequence", "wrong: llm_destroy does not return: the process ended by segmentation fault"},
	{"D7", "task5_frees_every_sequence", "wrong: llm_destroy returns -1, but this call has to succeed and return 0"},
	{"F1", "task2_free_passes_holes", "wrong: free_local_blocks is"},
	{"F9", "task2_accepts_any_int_as_id", "active_seqs: head → ?"},
	{"I11", "task1_accepts_pool_of_one_block", "before llm_init: no engine yet"},
	{"K3", "task3_copies_the_mapped_entries", "wrong: ref_count"},
	{"K14", "task3_null_tables_stay_null", "block_table[2–15] is a table, but has to be NULL"},
	{"X1", "task2_accepts_any_int_as_id", "cannot be followed"},
	{"R14", "task4_finds_any_sequence_of_the_list", "more lines, of tables and sequences"},
}

func TestWhatMutantsDidIsDrawn(t *testing.T) {
	level.SkipQuick(t)
	kit, err := build.NewKit()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, kit.Close()) })
	for _, g := range goldens {
		t.Run(g.mutant, func(t *testing.T) {
			s, d := scene(t, kit, g.mutant, g.trace)
			text := drawing.Text(s, d, 80, false)
			require.Contains(t, text, g.sees)
			golden(t, g.mutant+".txt", text)
			golden(t, g.mutant+".html", strings.Join(drawing.SVG(s, d), "\n")+"\n")
			sound(t, s, d, widths...)
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	require.Equal(t, read(t, path), got, "go test ./internal/grade/drawing -update writes it anew")
}

var widths = []int{0, 1, 40, 57, 80, 200} // of a terminal

// sound is what holds of every drawing.
func sound(t require.TestingT, s *compare.Scene, d *compare.Difference, widths ...int) {
	for _, width := range widths {
		text := drawing.Text(s, d, width, false)
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		require.LessOrEqual(t, len(lines), 54, "%s", text)
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
		coloured := drawing.Text(s, d, width, true)
		for _, code := range []string{"\x1b[1;36m", "\x1b[1;31m", "\x1b[0m"} {
			coloured = strings.ReplaceAll(coloured, code, "")
		}
		require.Equal(t, text, coloured, "colour changes nothing but colour")
	}
	pictures := drawing.SVG(s, d)
	require.Len(t, pictures, 3)
	for _, picture := range pictures {
		inside(t, picture)
	}
}

// equalBoxes holds that the boxes of ref_count have one width.
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

// inside holds that a picture is well-formed, has a name and a description, and
// that nothing is drawn outside its viewBox.
func inside(t require.TestingT, picture string) {
	decoder := xml.NewDecoder(strings.NewReader(picture))
	var height, boxes float64
	has := map[string]bool{}
	for {
		token, err := decoder.Token()
		if err == io.EOF {
			break
		}
		require.NoError(t, err, picture)
		element, is := token.(xml.StartElement)
		if !is {
			continue
		}
		has[element.Name.Local] = true
		at := map[string]float64{}
		for _, a := range element.Attr {
			at[a.Name.Local], _ = strconv.ParseFloat(a.Value, 64)
			if a.Name.Local == "viewBox" {
				height, err = strconv.ParseFloat(strings.Fields(a.Value)[3], 64)
				require.NoError(t, err)
			}
		}
		switch element.Name.Local {
		case "rect":
			boxes++
			require.LessOrEqual(t, at["x"]+at["width"], 360.0, picture)
			require.LessOrEqual(t, at["y"]+at["height"], height, picture)
		case "text":
			require.LessOrEqual(t, at["y"], height, picture)
		}
		require.NotEqual(t, "script", element.Name.Local)
	}
	require.True(t, has["title"] && has["desc"], picture)
}

func TestNothingIsDrawnOfNothing(t *testing.T) {
	for _, s := range []*compare.Scene{nil, {}, {Block: -1}} {
		require.Empty(t, drawing.Text(s, nil, 80, true))
		require.Empty(t, drawing.SVG(s, nil))
	}
}

// A pool may have a block or a million, and a broken submission leaves any
// numbers in it.
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
		RefCount: make([]int32, rapid.SampledFrom([]int{0, 1, 2, 16, 17, 1000, 20_000}).Draw(t, "blocks")),
		Records:  rapid.SliceOfN(number, 0, 16).Draw(t, "records"),
		Broken:   rapid.SampledFrom([]string{"", "engine->active_seqs"}).Draw(t, "broken"),
	}
	for range rapid.IntRange(0, 40).Draw(t, "counts") {
		if n := len(s.RefCount); n > 0 {
			s.RefCount[rapid.IntRange(0, n-1).Draw(t, "at")] = number.Draw(t, "count")
		}
	}
	for range rapid.IntRange(0, 64).Draw(t, "sequences") {
		q := compare.SequenceState{ID: number.Draw(t, "id"), KVCount: number.Draw(t, "kv_count")}
		first := number.Draw(t, "first")
		for slot := range 16 {
			if !rapid.Bool().Draw(t, "table") {
				continue
			}
			table := compare.Table{Slot: slot}
			for i := range table.Blocks {
				table.Blocks[i] = first + int32(i)
				if rapid.IntRange(0, 9).Draw(t, "odd") == 0 {
					table.Blocks[i] = number.Draw(t, "entry")
				}
			}
			q.Tables = append(q.Tables, table)
		}
		s.Sequences = append(s.Sequences, q)
	}
	return s
}

// What a stored report draws is what the report itself does.
func TestASceneThatWasStoredIsDrawnTheSame(t *testing.T) {
	level.SkipQuick(t)
	kit, err := build.NewKit()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, kit.Close()) })
	s, d := scene(t, kit, "A1", "task4_copies_a_shared_block")
	stored, err := json.Marshal(struct {
		S *compare.Scene
		D *compare.Difference
	}{s, d})
	require.NoError(t, err)
	var back struct {
		S *compare.Scene
		D *compare.Difference
	}
	require.NoError(t, json.Unmarshal(stored, &back))
	require.Equal(t, drawing.Text(s, d, 80, false), drawing.Text(back.S, back.D, 80, false))
	require.Equal(t, drawing.SVG(s, d), drawing.SVG(back.S, back.D))
}
