package view_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/browsertest"
	"llmmemory/internal/testkit/level"
	"llmmemory/internal/view"
)

const phone, desktop = 390, 1280

const moment = 10 * time.Millisecond

// patience is how long a test waits for a page to show something. It is generous, because no test measures speed.
const patience = 10 * time.Minute

func open(t *testing.T, parent context.Context, r *view.Recording, l browsertest.Look) context.Context {
	t.Helper()
	return browsertest.Open(t, parent, pageOf(t, view.Alone(r)), l)
}

func pageOf(t *testing.T, scenes ...*view.Scene) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "page.html")
	out, err := os.Create(file)
	require.NoError(t, err)
	require.NoError(t, view.Write(out, scenes...))
	require.NoError(t, out.Close())
	return file
}

func press(t *testing.T, x context.Context, keys ...string) {
	t.Helper()
	for _, key := range keys {
		require.NoError(t, chromedp.Do(x, chromedp.KeyEvent(key)))
	}
}

func click(t *testing.T, x context.Context, selector string) {
	t.Helper()
	require.NoError(t, chromedp.Do(x, chromedp.Click(chromedp.CSS(selector))))
}

func stepOf(t *testing.T, x context.Context) string {
	t.Helper()
	return browsertest.Evaluate[string](t, x, `document.documentElement.dataset.step`)
}

func story(t *testing.T, name string) *view.Recording {
	t.Helper()
	s, err := view.Story(name)
	require.NoError(t, err)
	return s.Recordings[0]
}

func copyStep(t *testing.T, r *view.Recording) int {
	t.Helper()
	i := slices.IndexFunc(r.Frames, func(f view.Frame) bool { return len(f.Copies) > 0 })
	require.Positive(t, i)
	return i
}

// made has the recordings made so far, so that all tests share one recording of each kind.
var made = map[string]*view.Recording{}

func recording(t *testing.T, name string) *view.Recording {
	t.Helper()
	if made[name] == nil {
		made[name] = runs[name](t)
	}
	return made[name]
}

func recordingNames() []string {
	return append(slices.Sorted(maps.Keys(runs)), view.Stories()...)
}

func goTo(t *testing.T, x context.Context, step int) {
	t.Helper()
	press(t, x, kb.Escape)
	browsertest.Evaluate[bool](t, x, fmt.Sprintf(`(document.activeElement.blur(), history.replaceState(null, '', '#step=%d'), dispatchEvent(new HashChangeEvent('hashchange')))`, step))
	require.Equal(t, strconv.Itoa(step), stepOf(t, x))
}

func TestAStoryCanBeReadPointedAtPlayedAndPrinted(t *testing.T) {
	browser := browsertest.Start(t)
	r := story(t, "copy-on-write")
	x := open(t, browser, r, browsertest.Look{Width: desktop})
	tests := []struct {
		name  string
		holds func(*testing.T, context.Context, *view.Recording)
	}{
		{"keys go among blocks", keysGoAmongBlocks},
		{"pointing at a block shows its details", pointingAtABlockShowsItsDetails},
		{"copy-on-write is seen", copyOnWriteIsSeen},
		{"playing moves through the frames", playingMovesThroughTheFrames},
		{"reduced motion is respected", reducedMotionIsRespected},
		{"the page prints on paper", thePagePrintsOnPaper},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.holds(t, x, r) })
	}
}

// Ensure that records of any size are shown. If a record is a long number, the page shows only its last digits, and a
// tooltip shows all of them.
func TestLargeRecordsAreShown(t *testing.T) {
	level.SkipNormal(t)
	browser := browsertest.Start(t)
	r, err := view.Course(strings.NewReader("init e0 128\ncreate e0 1 1\nappend e0 1 5000000\nappend e0 1 -2147483647\nappend e0 1 12345\n"))
	require.NoError(t, err)
	x := open(t, browser, r, browsertest.Look{Width: desktop})
	goTo(t, x, 4)
	shown := func(property string) []string {
		return browsertest.Evaluate[[]string](t, x, fmt.Sprintf(`[...document.querySelectorAll('#gpu .records i.set')].map(e => e.%s)`, property))
	}
	require.Equal(t, []string{"·", "…0000", "…3647", "12345"}, shown("textContent"))
	require.Equal(t, []string{"", "5000000", "-2147483647", ""}, shown("title"))
}

// copyOnWriteIsSeen checks that the page shows a copy-on-write: a word and an arrow mark the copy, and the two
// sequences have different blocks afterwards.
func copyOnWriteIsSeen(t *testing.T, x context.Context, r *view.Recording) {
	step := copyStep(t, r)
	pair := r.Frames[step].Copies[0]
	goTo(t, x, step-1)
	cell := func(id int32, expr string) string {
		return browsertest.Evaluate[string](t, x, fmt.Sprintf(`String(document.querySelector('#gpu [data-block="%d"]')%s)`, id, expr))
	}
	require.Equal(t, "shared", cell(pair.Src, ".dataset.state"))
	require.Equal(t, "free", cell(pair.Dst, ".dataset.state"))
	require.False(t, browsertest.Evaluate[bool](t, x, `!!document.querySelector('#arrows')`))
	click(t, x, "#next")
	require.Equal(t, "own", cell(pair.Src, ".dataset.state"))
	require.Equal(t, "own", cell(pair.Dst, ".dataset.state"))
	require.Equal(t, "copy", cell(pair.Dst, ".dataset.mark"))
	require.Equal(t, fmt.Sprintf("copy of %d", pair.Src), cell(pair.Dst, ".querySelector('.word').textContent"))
	require.Equal(t, "×2 → ×1", cell(pair.Src, ".querySelector('.word').textContent"))
	require.NotEqual(t, cell(pair.Src, ".dataset.owners"), cell(pair.Dst, ".dataset.owners"))
	require.EqualValues(t, 1, browsertest.Evaluate[int](t, x, `document.querySelectorAll('#arrows path[marker-end]').length`))
	require.Contains(t, browsertest.Evaluate[string](t, x, `document.getElementById('said').textContent`), fmt.Sprintf("copy-on-write %d → %d", pair.Src, pair.Dst))
	require.Equal(t, []string{"101", "201"}, browsertest.Evaluate[[]string](t, x, fmt.Sprintf(`[...document.querySelectorAll('#gpu [data-block="%d"] .records i')].map(e => e.textContent).filter(s => /\d/.test(s))`, pair.Dst)))
	require.Equal(t, []string{"201"}, browsertest.Evaluate[[]string](t, x, `[...document.querySelectorAll('#gpu .records i.just')].map(e => e.textContent)`), "what was written is told from what was copied")
	last := func(sequence int) string {
		return browsertest.Evaluate[string](t, x, fmt.Sprintf(`[...document.querySelectorAll('.table[data-sequence="%d"] .entry')].pop().dataset.block`, sequence))
	}
	require.Equal(t, fmt.Sprint(pair.Src), last(1))
	require.Equal(t, fmt.Sprint(pair.Dst), last(2))
}

func TestTheButtonsStepThroughTheFrames(t *testing.T) {
	level.SkipNormal(t)
	browser := browsertest.Start(t)
	r := story(t, "copy-on-write")
	end := strconv.Itoa(len(r.Frames) - 1)
	x := open(t, browser, r, browsertest.Look{Width: desktop, Fragment: "step=12"})
	require.Equal(t, "12", stepOf(t, x), "the fragment names the step")
	for _, s := range []struct{ key, want string }{
		{kb.ArrowRight, "13"}, {kb.ArrowLeft, "12"}, {".", "13"}, {",", "12"}, {kb.PageDown, end}, {kb.PageUp, strconv.Itoa(len(r.Frames) - 11)},
		{kb.Home, "0"}, {kb.ArrowLeft, "0"}, {kb.End, end}, {kb.ArrowRight, end},
	} {
		press(t, x, s.key)
		require.Equal(t, s.want, stepOf(t, x), "after %q", s.key)
		require.Equal(t, s.want, browsertest.Evaluate[string](t, x, `document.getElementById('slider').value`))
	}
	require.Eventually(t, func() bool { return browsertest.Evaluate[string](t, x, `location.hash`) == "#step="+end }, patience, 10*time.Millisecond, "the address names the step")
	for _, s := range []struct{ button, want string }{{"#first", "0"}, {"#next", "1"}, {"#next", "2"}, {"#back", "1"}, {"#last", end}} {
		click(t, x, s.button)
		require.Equal(t, s.want, stepOf(t, x), "after %s", s.button)
	}
	require.True(t, browsertest.Evaluate[bool](t, x, `document.getElementById('next').disabled`))
	require.True(t, browsertest.Evaluate[bool](t, x, `(location.hash = '#step=5', true)`))
	require.Eventually(t, func() bool { return stepOf(t, x) == "5" }, patience, 10*time.Millisecond)

	require.True(t, browsertest.Evaluate[bool](t, x, `(document.getElementById('slider').focus(), true)`))
	press(t, x, kb.ArrowRight)
	require.Equal(t, "6", stepOf(t, x), "the slider moves by one")
	press(t, x, kb.Home)
	require.Equal(t, "0", stepOf(t, x))
	require.Contains(t, browsertest.Evaluate[string](t, x, `document.getElementById('slider').getAttribute('aria-valuetext')`), "step 0 of "+end+": e0 = llm_init(pool, 512)")
}

func playingMovesThroughTheFrames(t *testing.T, x context.Context, r *view.Recording) {
	goTo(t, x, 0)
	require.True(t, browsertest.Evaluate[bool](t, x, `(document.getElementById('speed').value = '10', true)`))
	live := `document.getElementById('said').getAttribute('aria-live')`
	require.Equal(t, "polite", browsertest.Evaluate[string](t, x, live))
	press(t, x, " ")
	require.Equal(t, "off", browsertest.Evaluate[string](t, x, live), "nobody wants ten sentences a second read out")
	require.Eventually(t, func() bool { return stepOf(t, x) != "0" }, patience, 10*time.Millisecond)
	press(t, x, " ")
	stopped := stepOf(t, x)
	require.Equal(t, "▶ Play", browsertest.Evaluate[string](t, x, `document.getElementById('play').textContent`))
	time.Sleep(300 * time.Millisecond) // three steps, if it went on
	require.Equal(t, stopped, stepOf(t, x))
	click(t, x, "#play")
	require.Eventually(t, func() bool { return stepOf(t, x) == strconv.Itoa(len(r.Frames)-1) }, patience, 20*time.Millisecond)
	require.Equal(t, "▶ Play", browsertest.Evaluate[string](t, x, `document.getElementById('play').textContent`), "it stops at the end")
}

func pointingAtABlockShowsItsDetails(t *testing.T, x context.Context, r *view.Recording) {
	step := copyStep(t, r)
	pair := r.Frames[step].Copies[0]
	goTo(t, x, step)
	details := func() string {
		return browsertest.Evaluate[string](t, x, `document.getElementById('details').innerText`)
	}
	hover := func(selector string) {
		require.NoError(t, chromedp.Do(x, chromedp.ScrollIntoView(chromedp.CSS(selector))))
		place := browsertest.Evaluate[[]float64](t, x, fmt.Sprintf(`(() => { const r = document.querySelector(%q).getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] })()`, selector))
		require.NoError(t, chromedp.Do(x, chromedp.MouseEvent("mouseMoved", place[0], place[1])))
	}
	require.Contains(t, details(), "Point at a block")
	hover(`#gpu [data-block="0"]`)
	require.Contains(t, details(), "Block 0 – shared")
	require.Contains(t, details(), "In use since step 1; 2 references; 16 of 16 slots filled.")
	require.Contains(t, details(), "Sequence 1, logical block 0: records 0–15 in slots 0–15")
	require.Contains(t, details(), "Sequence 2, logical block 0: records 0–15 in slots 0–15")
	require.EqualValues(t, 2, browsertest.Evaluate[int](t, x, `document.querySelectorAll('.entry.hi').length`), "both table entries that name it")

	hover(fmt.Sprintf(`.entry[data-block="%d"]`, pair.Dst))
	require.Contains(t, details(), fmt.Sprintf("In this step: a copy of block %d.", pair.Src))
	require.Contains(t, details(), "Sequence 2, logical block 2: records 32–41 in slots 0–9")
	require.Equal(t, fmt.Sprint(pair.Dst), browsertest.Evaluate[string](t, x, `document.querySelector('#gpu .cell.hi').dataset.block`), "a table entry shows its block")

	browsertest.Shoot(t, x, "details")
	click(t, x, fmt.Sprintf(`#gpu [data-block="%d"]`, pair.Src))
	hover("h1")
	require.Contains(t, details(), fmt.Sprintf("Block %d – in use", pair.Src), "kept")
	press(t, x, kb.Escape)
	require.True(t, browsertest.Evaluate[bool](t, x, `(document.activeElement.blur(), true)`))
	require.Contains(t, details(), "Point at a block")
}

func keysGoAmongBlocks(t *testing.T, x context.Context, _ *view.Recording) {
	goTo(t, x, 4)
	focused := `document.activeElement.dataset.block`
	for range 30 {
		press(t, x, kb.Tab)
		if browsertest.Evaluate[bool](t, x, `document.activeElement.classList.contains('cell')`) {
			break
		}
	}
	require.Equal(t, "0", browsertest.Evaluate[string](t, x, focused))
	require.NotEqual(t, "none", browsertest.Evaluate[string](t, x, `getComputedStyle(document.activeElement).outlineStyle`), "focus cannot be seen")
	require.Contains(t, browsertest.Evaluate[string](t, x, `document.getElementById('details').innerText`), "Block 0 – shared")
	press(t, x, kb.ArrowRight, kb.ArrowRight)
	require.Equal(t, "2", browsertest.Evaluate[string](t, x, focused))
	require.Equal(t, "4", stepOf(t, x), "arrows go from block to block here")
	columns := browsertest.Evaluate[int](t, x, `getComputedStyle(document.getElementById('gpu')).gridTemplateColumns.split(' ').length`)
	press(t, x, kb.ArrowDown)
	require.Equal(t, strconv.Itoa(2+columns), browsertest.Evaluate[string](t, x, focused))
	press(t, x, kb.ArrowUp, kb.Enter, ".")
	require.Equal(t, "5", stepOf(t, x))
	require.Equal(t, "2", browsertest.Evaluate[string](t, x, `document.querySelector('.cell[aria-selected]').dataset.block`), "kept from step to step")
	require.Equal(t, "Block 2: in use by 1, 9 of 16 slots", browsertest.Evaluate[string](t, x, `document.activeElement.getAttribute('aria-label')`))
	press(t, x, kb.Tab)
	require.Equal(t, "SUMMARY", browsertest.Evaluate[string](t, x, `document.activeElement.tagName`), "one Tab leaves the grid")
	press(t, x, kb.Tab, kb.Tab)
	require.True(t, browsertest.Evaluate[bool](t, x, `document.activeElement.classList.contains('entry')`), "after the first sequence comes its table")
	press(t, x, kb.ArrowRight, kb.ArrowDown)
	require.Equal(t, "2", browsertest.Evaluate[string](t, x, `document.activeElement.closest('.table').dataset.sequence`))
	for _, key := range []string{"?", "/"} {
		press(t, x, key)
		require.True(t, browsertest.Evaluate[bool](t, x, `document.getElementById('help').open`))
		press(t, x, kb.Escape)
		require.False(t, browsertest.Evaluate[bool](t, x, `document.getElementById('help').open`))
	}
}

// contrast is JavaScript: a function that lists the texts of an element with a contrast below 4.5 : 1 (WCAG, level AA).
// Behind the text of a block, the colour may be anything between the request's colour and the page's colour, or the
// colour of old content. contrast therefore checks this text on all of these.
const contrast = `(root => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true })
  const known = {}, rgba = s => known[s] ||= read(s), read = s => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = s; canvas.fillRect(0, 0, 1, 1); const d = canvas.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255] }
  const over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3])).concat(1)
  const light = c => { const [r, g, b] = c.slice(0, 3).map(x => (x /= 255) <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b }
  const ground = e => { const layers = []; for (; e; e = e.parentElement) layers.push(rgba(getComputedStyle(e).backgroundColor)); return layers.reverse().reduce((below, c) => over(c, below), [255, 255, 255, 1]) }
  const page = rgba(getComputedStyle(document.body).backgroundColor)
  const bad = new Set(), walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT)
  let seen = 0
  for (let n; n = walk.nextNode();) {
    const e = n.parentElement
    if (!n.data.trim() || !e.getClientRects().length || e.disabled || ['script', 'style', 'option', 'noscript'].includes(e.localName)) continue
    const colour = rgba(getComputedStyle(e).color)
    const cell = e.closest('.cell'), remains = cell ? [...cell.querySelectorAll('.old i')].map(i => over(rgba(getComputedStyle(i).backgroundColor), page)) : []
    for (const below of cell && !e.closest('.word, .sign, .just') ? [ground(e), page, ...remains] : [ground(e)]) {
      const [a, b] = [light(over(colour, below)), light(below)]
      const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)
      seen++
      if (ratio < 4.5) bad.add(e.className + ' ' + n.data.trim() + ': ' + ratio.toFixed(2))
    }
  }
  return seen ? [...bad] : ['no text']
})`

func reducedMotionIsRespected(t *testing.T, x context.Context, r *view.Recording) {
	goTo(t, x, copyStep(t, r))
	for _, still := range []bool{false, true} {
		browsertest.Change(t, x, browsertest.Look{Width: desktop, Still: still})
		require.Equal(t, still, browsertest.Evaluate[string](t, x, `getComputedStyle(document.querySelector('#arrows path[marker-end]')).animationName`) == "none")
	}
}

func thePagePrintsOnPaper(t *testing.T, x context.Context, _ *view.Recording) {
	browsertest.Change(t, x, browsertest.Look{Width: desktop, Dark: true})
	goTo(t, x, 4)
	browsertest.Print(t, x)
	require.False(t, browsertest.Evaluate[bool](t, x, `document.querySelector('.bar').checkVisibility()`), "there is nothing to press on paper")
	require.Equal(t, "rgb(255, 255, 255)", browsertest.Evaluate[string](t, x, `getComputedStyle(document.body).backgroundColor`))
	require.Empty(t, browsertest.Evaluate[[]string](t, x, contrast+`(document.body)`))
}
