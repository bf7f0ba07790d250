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
	"llmmemory/internal/vllm/device"
)

const phone, desktop = 390, 1280

// patience is for what happens by itself in a page. It is no measure of speed.
const patience = 10 * time.Minute

// open shows a recording in a tab of its own.
func open(t *testing.T, in context.Context, r *view.Recording, l browsertest.Look) context.Context {
	t.Helper()
	file := filepath.Join(t.TempDir(), "run.html")
	to, err := os.Create(file)
	require.NoError(t, err)
	require.NoError(t, view.Write(to, r))
	require.NoError(t, to.Close())
	return browsertest.Open(t, in, file, l)
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

func at(t *testing.T, x context.Context) string {
	t.Helper()
	return browsertest.Evaluate[string](t, x, `document.documentElement.dataset.step`)
}

// story is the first recording of a story.
func story(t *testing.T, name string) *view.Recording {
	t.Helper()
	s, err := view.Story(name)
	require.NoError(t, err)
	return s.Recordings[0]
}

// copyStep is the first step of a story that copies a block.
func copyStep(t *testing.T, r *view.Recording) int {
	t.Helper()
	i := slices.IndexFunc(r.Frames, func(f view.Frame) bool { return len(f.Copies) > 0 })
	require.Positive(t, i)
	return i
}

// made are the recordings of runs, each made once for all tests.
var made = map[string]*view.Recording{}

// recording is that of a run or of a story.
func recording(t *testing.T, name string) *view.Recording {
	t.Helper()
	if made[name] == nil {
		if run := runs[name]; run != nil {
			made[name] = run(t)
		} else {
			made[name] = story(t, name)
		}
	}
	return made[name]
}

// recordingNames are one of each kind of scheduler, and the stories.
func recordingNames() []string {
	return append(slices.Sorted(maps.Keys(runs)), view.Stories()...)
}

// A shownFrame is what a page shows of a frame: of each block its count, filled
// slots and owners; of each sequence its tokens, device and table.
type shownFrame struct {
	Blocks [2][]string
	Tables []string
	Queues []string
}

const shown = `(() => {
  const blocks = id => [...document.querySelectorAll('#' + id + ' .cell')].map(c => [c.dataset.state, c.dataset.count, c.dataset.filled, c.dataset.owners].join('/'))
  return {
    Blocks: [document.getElementById('gpu').hidden ? [] : blocks('gpu'), blocks('cpu')],
    Tables: [...document.querySelectorAll('.table')].map(e => [e.dataset.sequence, e.dataset.tokens, e.dataset.device, e.dataset.table].join('/')),
    Queues: [...document.querySelectorAll('[data-queue]')].map(e => e.dataset.queue + ':' + e.dataset.requests),
  }
})()`

// A shownStep is the step that a page is at.
type shownStep struct {
	At    string
	Said  []string
	Frame shownFrame
}

// walk looks at the page, and again after a key was pressed so many times, and so on.
const walk = `(() => {
  const steps = [], shown = () => %s
  for (let n = %[3]d; n > 0; n--) {
    steps.push({ At: document.documentElement.dataset.step, Said: [...document.querySelectorAll('#said p:not(.more)')].map(e => e.textContent), Frame: shown() })
    for (let i = 0; i < %[4]d; i++) document.body.dispatchEvent(new KeyboardEvent('keydown', { key: '%[2]s', bubbles: true }))
  }
  return steps
})()`

// want is the same from the recording alone.
func want(r *view.Recording, f *view.Frame, several map[int]bool) shownFrame {
	name := func(s *view.Sequence) string {
		if several[s.Request] {
			return strconv.Itoa(s.Request) + string(rune('a'+s.Number))
		}
		return strconv.Itoa(s.Request)
	}
	w := shownFrame{Tables: []string{}, Queues: []string{}}
	for device, n := range []int{f.Blocks, r.NumCPUBlocks} {
		w.Blocks[device] = make([]string, n)
		for id := range n {
			count, filled, cached := 0, 0, device == 0 && slices.Contains(f.Cached, int32(id))
			var owners []string
			for i := range f.Sequences {
				s := &f.Sequences[i]
				for l, b := range s.Table {
					if s.CPU == (device == 1) && b == int32(id) {
						count++
						filled = max(filled, min(r.BlockSize, s.Tokens-l*r.BlockSize))
						if !slices.Contains(owners, name(s)) {
							owners = append(owners, name(s))
						}
					}
				}
			}
			for _, c := range f.Counts {
				if c.CPU == (device == 1) && c.Block == int32(id) {
					count = int(c.Count)
				}
			}
			state := "free"
			switch {
			case count > 1 && owners != nil:
				state = "shared"
			case owners != nil:
				state = "own"
			case count > 0:
				state = "held"
			case cached:
				state = "cached"
			}
			w.Blocks[device][id] = fmt.Sprintf("%s/%d/%d/%s", state, count, filled, strings.Join(owners, " "))
		}
	}
	for i := range f.Sequences {
		s := &f.Sequences[i]
		device := 0
		if s.CPU {
			device = 1
		}
		w.Tables = append(w.Tables, fmt.Sprintf("%s/%d/%d/%s", name(s), s.Tokens, device, strings.Trim(fmt.Sprint(s.Table), "[]")))
	}
	if !r.Course {
		queue := func(name string, ids []int) {
			if len(ids) > 0 || name != "swapped" || r.NumCPUBlocks > 0 {
				w.Queues = append(w.Queues, name+":"+strings.Trim(fmt.Sprint(ids), "[]"))
			}
		}
		queue("waiting", f.Waiting)
		queue("running", f.Running)
		queue("swapped", f.Swapped)
	}
	return w
}

// Ensure that what the page shows of every step is the recording's state,
// forwards and backwards.
func TestThePageShowsTheState(t *testing.T) {
	in := browsertest.Start(t)
	for _, name := range recordingNames() {
		if !level.Long() && (name == "large" || name == "reserved") { // "paged" has as many blocks
			continue
		}
		t.Run(name, func(t *testing.T) {
			r := recording(t, name)
			several := map[int]bool{}
			for _, f := range r.Frames {
				for _, s := range f.Sequences {
					several[s.Request] = several[s.Request] || s.Number > 0
				}
			}
			x := open(t, in, r, browsertest.Look{Width: desktop})
			last := len(r.Frames) - 1
			stride := level.Pick(1+max(last/30, len(r.Frames)*r.NumGPUBlocks/8000), 1)
			forwards := browsertest.Evaluate[[]shownStep](t, x, fmt.Sprintf(walk, shown, "ArrowRight", last/stride+1, stride))
			require.Len(t, forwards, last/stride+1)
			for n, step := range forwards {
				i := n * stride
				said := r.Frames[i].Said
				require.Equal(t, shownStep{strconv.Itoa(i), said[:min(6, len(said))], want(r, &r.Frames[i], several)}, step)
			}
			press(t, x, kb.End)
			backwards := browsertest.Evaluate[[]shownStep](t, x, fmt.Sprintf(walk, shown, "ArrowLeft", min(last/7+1, level.Pick(6, last)), 7))
			for i, step := range backwards {
				at := last - 7*i
				require.Equal(t, strconv.Itoa(at), step.At)
				require.Equal(t, want(r, &r.Frames[at], several), step.Frame, "step %d, backwards", at)
			}
		})
	}
}

// Ensure that a student sees copy-on-write: the copy is marked with a word and an
// arrow, and the two sequences have different blocks afterwards.
func TestCopyOnWriteIsSeen(t *testing.T) {
	in := browsertest.Start(t)
	r := story(t, "copy-on-write")
	step := copyStep(t, r)
	pair := r.Frames[step].Copies[0]
	x := open(t, in, r, browsertest.Look{Width: desktop, Fragment: "step=" + strconv.Itoa(step-1)})
	require.Equal(t, strconv.Itoa(step-1), at(t, x))
	cell := func(id int32, what string) string {
		return browsertest.Evaluate[string](t, x, fmt.Sprintf(`String(document.querySelector('#gpu [data-block="%d"]')%s)`, id, what))
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
	in := browsertest.Start(t)
	r := story(t, "copy-on-write")
	end := strconv.Itoa(len(r.Frames) - 1)
	x := open(t, in, r, browsertest.Look{Width: desktop, Fragment: "step=12"})
	require.Equal(t, "12", at(t, x), "the fragment names the step")
	for _, s := range []struct{ key, to string }{
		{kb.ArrowRight, "13"}, {kb.ArrowLeft, "12"}, {".", "13"}, {",", "12"}, {kb.PageDown, end}, {kb.PageUp, strconv.Itoa(len(r.Frames) - 11)},
		{kb.Home, "0"}, {kb.ArrowLeft, "0"}, {kb.End, end}, {kb.ArrowRight, end},
	} {
		press(t, x, s.key)
		require.Equal(t, s.to, at(t, x), "after %q", s.key)
		require.Equal(t, s.to, browsertest.Evaluate[string](t, x, `document.getElementById('slider').value`))
	}
	require.Eventually(t, func() bool { return browsertest.Evaluate[string](t, x, `location.hash`) == "#step="+end }, patience, 10*time.Millisecond, "the address names the step")
	for _, s := range []struct{ button, to string }{{"#first", "0"}, {"#next", "1"}, {"#next", "2"}, {"#back", "1"}, {"#last", end}} {
		click(t, x, s.button)
		require.Equal(t, s.to, at(t, x), "after %s", s.button)
	}
	require.True(t, browsertest.Evaluate[bool](t, x, `document.getElementById('next').disabled`))
	require.True(t, browsertest.Evaluate[bool](t, x, `(location.hash = '#step=5', true)`))
	require.Eventually(t, func() bool { return at(t, x) == "5" }, patience, 10*time.Millisecond)

	require.True(t, browsertest.Evaluate[bool](t, x, `(document.getElementById('slider').focus(), true)`))
	press(t, x, kb.ArrowRight)
	require.Equal(t, "6", at(t, x), "the slider moves by one")
	press(t, x, kb.Home)
	require.Equal(t, "0", at(t, x))
	require.Contains(t, browsertest.Evaluate[string](t, x, `document.getElementById('slider').getAttribute('aria-valuetext')`), "step 0 of "+end+": e0 = llm_init(pool, 512)")
}

func TestPlayingMovesThroughTheFrames(t *testing.T) {
	in := browsertest.Start(t)
	r := story(t, "copy-on-write")
	x := open(t, in, r, browsertest.Look{Width: desktop})
	require.True(t, browsertest.Evaluate[bool](t, x, `(document.getElementById('speed').value = '10', true)`))
	live := `document.getElementById('said').getAttribute('aria-live')`
	require.Equal(t, "polite", browsertest.Evaluate[string](t, x, live))
	press(t, x, " ")
	require.Equal(t, "off", browsertest.Evaluate[string](t, x, live), "nobody wants ten sentences a second read out")
	require.Eventually(t, func() bool { return at(t, x) != "0" }, patience, 10*time.Millisecond)
	press(t, x, " ")
	stopped := at(t, x)
	require.Equal(t, "▶ Play", browsertest.Evaluate[string](t, x, `document.getElementById('play').textContent`))
	time.Sleep(300 * time.Millisecond) // three steps, if it went on
	require.Equal(t, stopped, at(t, x))
	click(t, x, "#play")
	require.Eventually(t, func() bool { return at(t, x) == strconv.Itoa(len(r.Frames)-1) }, patience, 20*time.Millisecond)
	require.Equal(t, "▶ Play", browsertest.Evaluate[string](t, x, `document.getElementById('play').textContent`), "it stops at the end")
}

func TestPointingAtABlockShowsItsDetails(t *testing.T) {
	in := browsertest.Start(t)
	r := story(t, "copy-on-write")
	step := copyStep(t, r)
	pair := r.Frames[step].Copies[0]
	x := open(t, in, r, browsertest.Look{Width: desktop, Fragment: "step=" + strconv.Itoa(step)})
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

func TestKeyboardAmongBlocks(t *testing.T) {
	in := browsertest.Start(t)
	x := open(t, in, story(t, "copy-on-write"), browsertest.Look{Width: desktop, Fragment: "step=4"})
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
	require.Equal(t, "4", at(t, x), "arrows go from block to block here")
	across := browsertest.Evaluate[int](t, x, `getComputedStyle(document.getElementById('gpu')).gridTemplateColumns.split(' ').length`)
	press(t, x, kb.ArrowDown)
	require.Equal(t, strconv.Itoa(2+across), browsertest.Evaluate[string](t, x, focused))
	press(t, x, kb.ArrowUp, kb.Enter, ".")
	require.Equal(t, "5", at(t, x))
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

// contrast lists the texts with less than 4.5 : 1 (WCAG, AA). A block's text lies
// on the colour of its request, and on the ground mixed into that, which is
// between the two: so it must be readable on both.
const contrast = `(() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true })
  const known = {}, rgba = s => known[s] ||= read(s), read = s => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = s; canvas.fillRect(0, 0, 1, 1); const d = canvas.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255] }
  const over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3])).concat(1)
  const light = c => { const [r, g, b] = c.slice(0, 3).map(x => (x /= 255) <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b }
  const ground = e => { const layers = []; for (; e; e = e.parentElement) layers.push(rgba(getComputedStyle(e).backgroundColor)); return layers.reverse().reduce((below, c) => over(c, below), [255, 255, 255, 1]) }
  const page = rgba(getComputedStyle(document.body).backgroundColor)
  const bad = new Set(), walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  let seen = 0
  for (let n; n = walk.nextNode();) {
    const e = n.parentElement
    if (!n.data.trim() || !e.getClientRects().length || e.disabled || ['script', 'style', 'option', 'noscript'].includes(e.localName)) continue
    const colour = rgba(getComputedStyle(e).color)
    for (const below of e.closest('.cell') && !e.closest('.word, .sign, .just') ? [ground(e), page] : [ground(e)]) {
      const [a, b] = [light(over(colour, below)), light(below)]
      const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)
      seen++
      if (ratio < 4.5) bad.add(e.className + ' ' + n.data.trim() + ': ' + ratio.toFixed(2))
    }
  }
  return seen ? [...bad] : ['no text']
})()`

// Ensure that the page can be used on a phone and on a desk, in light and dark.
func TestThePageFitsPhoneAndDeskInLightAndDark(t *testing.T) {
	in := browsertest.Start(t)
	for i, name := range []string{"copy-on-write", "two-levels", "paged", "reserved", "cached", "static", "swapped", "large"} {
		looks := []browsertest.Look{{Width: desktop}, {Width: desktop, Dark: true}, {Width: phone}, {Width: phone, Dark: true}}
		switch {
		case level.Long():
		case name == "large":
			looks = looks[2:3] // it takes long
		case i > 0:
			looks = looks[3*(i%2):][:1] // both widths, both schemes, of different pages
		}
		for _, l := range looks {
			t.Run(fmt.Sprintf("%s %d dark %t", name, l.Width, l.Dark), func(t *testing.T) {
				r := recording(t, name)
				l.Fragment = "step=" + strconv.Itoa(min(len(r.Frames)-1, max(4, len(r.Frames)/2)))
				x := open(t, in, r, l)
				fits := func() {
					browsertest.RequireFits(t, x, l)
				}
				fits()
				require.Greater(t, browsertest.Evaluate[int64](t, x, `document.getElementById('pools').clientWidth`), min(l.Width/2, 300), "the blocks have no room")
				require.Empty(t, browsertest.Evaluate[[]string](t, x, contrast))
				require.Empty(t, browsertest.Evaluate[[]string](t, x, `[...document.querySelectorAll('#gpu .cell')].filter(c => c.getBoundingClientRect().width < 8.9).map(c => c.dataset.block)`), "a block cannot be hit")
				browsertest.Shoot(t, x, fmt.Sprintf("%s-%d-dark-%t", name, l.Width, l.Dark))
				press(t, x, kb.End)
				fits()
				press(t, x, "?")
				require.Empty(t, browsertest.Evaluate[[]string](t, x, contrast))
				fits()
			})
		}
	}
}

// Ensure that nothing is said by colour alone: without any, two blocks of
// different states differ in text, border or pattern.
func TestStatesDifferWithoutColour(t *testing.T) {
	in := browsertest.Start(t)
	x := open(t, in, recording(t, "cached"), browsertest.Look{Width: desktop})
	looks := browsertest.Evaluate[map[string]string](t, x, `(() => {
  const all = {}
  for (const c of document.querySelectorAll('#legend .cell')) {
    const s = getComputedStyle(c), before = getComputedStyle(c, '::before')
    all[c.nextSibling.textContent] = [c.textContent, s.borderTopStyle, s.borderTopWidth, s.backgroundImage.split('(')[0], before.display, before.width, before.backgroundImage.split('(')[0], s.boxShadow.split(') ')[1]].join('|')
  }
  return all
})()`)
	require.GreaterOrEqual(t, len(looks), 7)
	seen := map[string]string{}
	for name, l := range looks {
		require.NotContains(t, seen, l, "%s looks like %s", name, seen[l])
		seen[l] = name
	}
}

func TestReducedMotionIsRespected(t *testing.T) {
	in := browsertest.Start(t)
	r := story(t, "copy-on-write")
	for _, still := range []bool{false, true} {
		x := open(t, in, r, browsertest.Look{Width: desktop, Still: still, Fragment: "step=" + strconv.Itoa(copyStep(t, r))})
		require.Equal(t, still, browsertest.Evaluate[string](t, x, `getComputedStyle(document.querySelector('#arrows path[marker-end]')).animationName`) == "none")
	}
}

// Ensure that the page is not empty without scripts.
func TestWithoutScriptsThePageIsNotEmpty(t *testing.T) {
	in := browsertest.Start(t)
	l := browsertest.Look{Width: phone, NoScript: true}
	x := open(t, in, story(t, "copy-on-write"), l)
	text := browsertest.Evaluate[string](t, x, `document.body.innerText`)
	require.Contains(t, text, "scripts are switched off")
	require.Contains(t, text, "No sequence has blocks.")
	require.NotContains(t, text, "Play")
	browsertest.RequireFits(t, x, l)
	y := open(t, in, recording(t, "paged"), l)
	require.Regexp(t, `\d+\s+\d+\s+blocks? \d+`, browsertest.Evaluate[string](t, y, `document.body.innerText`))
}

func TestThePagePrintsOnPaper(t *testing.T) {
	in := browsertest.Start(t)
	x := open(t, in, story(t, "copy-on-write"), browsertest.Look{Width: desktop, Dark: true, Fragment: "step=4"})
	browsertest.Print(t, x)
	require.False(t, browsertest.Evaluate[bool](t, x, `document.querySelector('.bar').checkVisibility()`), "there is nothing to press on paper")
	require.Equal(t, "rgb(255, 255, 255)", browsertest.Evaluate[string](t, x, `getComputedStyle(document.body).backgroundColor`))
	require.Empty(t, browsertest.Evaluate[[]string](t, x, contrast))
}

const hostile = `</script><script>document.title="owned"</script><img src=x onerror="document.title='owned'">&amp;\u2028` + "\u2028'\"`${1}"

// Ensure that no text of a recording becomes markup or script.
func TestNoTextOfARecordingBecomesMarkup(t *testing.T) {
	in := browsertest.Start(t)
	r := &view.Recording{Title: hostile, System: hostile, Note: hostile, BlockSize: 4, NumGPUBlocks: 4, Frames: []view.Frame{
		{Said: []string{hostile}, Call: hostile, Blocks: 4, Sequences: []view.Sequence{{Request: 1, Tokens: 5, Table: []int32{2, 0}}}},
		{Said: []string{hostile, "},{"}, Blocks: 4, Copies: []device.Pair{{Src: 2, Dst: 3}}},
	}}
	for _, noScript := range []bool{false, true} {
		x := open(t, in, r, browsertest.Look{Width: desktop, NoScript: noScript})
		require.Equal(t, hostile+" – memory map", browsertest.Evaluate[string](t, x, `document.querySelector('title').textContent`))
		require.Equal(t, hostile, browsertest.Evaluate[string](t, x, `document.querySelector('h1').textContent`))
		require.Contains(t, browsertest.Evaluate[string](t, x, `document.body.innerText`), `onerror="document.title='owned'"`)
		require.Zero(t, browsertest.Evaluate[int](t, x, `document.querySelectorAll('img').length`))
	}
}
