package view_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/device"
	"llmmemory/internal/testkit/browsertest"
	"llmmemory/internal/testkit/level"
	"llmmemory/internal/view"
)

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

func TestThePageFitsPhoneAndDeskInLightAndDark(t *testing.T) {
	looks := []browsertest.Look{{Width: desktop}, {Width: phone, Dark: true}, {Width: desktop, Dark: true}, {Width: phone}}
	all := slices.DeleteFunc(recordingNames(), func(name string) bool { return name == "rare" })
	x := newTour(t, looks[0], all...)
	for k, l := range looks {
		browsertest.Change(t, x.tab, l)
		for i, name := range all {
			// To save time, make test checks each scene with one combination of width and colour scheme. The scenes
			// together cover all combinations.
			if !level.Long() && i%len(looks) != k {
				continue
			}
			t.Run(fmt.Sprintf("%s %d dark %t", name, l.Width, l.Dark), func(t *testing.T) {
				last := len(x.scenes[name].Recordings[0].Frames) - 1
				x.visit(t, name, min(last, max(4, last/2)))
				browsertest.RequireFits(t, x.tab, l)
				require.Greater(t, browsertest.Evaluate[int64](t, x.tab, `Math.min(...[...document.querySelectorAll('.pools')].map(e => e.clientWidth))`), min(l.Width/2-60, 300), "the blocks have no room")
				if name != "large" { // its cells are those of "paged"
					require.Empty(t, browsertest.Evaluate[[]string](t, x.tab, contrast+`(document.body)`))
				}
				require.Empty(t, browsertest.Evaluate[[]string](t, x.tab, `[...document.querySelectorAll('#gpu .cell')].filter(c => c.getBoundingClientRect().width < 8.9).map(c => c.dataset.block)`), "a block cannot be hit")
				browsertest.Shoot(t, x.tab, fmt.Sprintf("%s-%d-dark-%t", name, l.Width, l.Dark))
				press(t, x.tab, kb.End)
				browsertest.RequireFits(t, x.tab, l)
			})
		}
		press(t, x.tab, "?")
		require.Empty(t, browsertest.Evaluate[[]string](t, x.tab, contrast+`(document.getElementById('help'))`), "the list of keys")
		browsertest.RequireFits(t, x.tab, l)
		press(t, x.tab, kb.Escape)
	}
}

// Ensure that blocks in different states differ in text, border or pattern, and not only in colour.
func TestStatesDifferWithoutColour(t *testing.T) {
	browser := browsertest.Start(t)
	x := open(t, browser, recording(t, "cached"), browsertest.Look{Width: desktop})
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

func reducedMotionIsRespected(t *testing.T, x context.Context, r *view.Recording) {
	goTo(t, x, copyStep(t, r))
	for _, still := range []bool{false, true} {
		browsertest.Change(t, x, browsertest.Look{Width: desktop, Still: still})
		require.Equal(t, still, browsertest.Evaluate[string](t, x, `getComputedStyle(document.querySelector('#arrows path[marker-end]')).animationName`) == "none")
	}
}

func TestWithoutScriptsThePageIsNotEmpty(t *testing.T) {
	browser := browsertest.Start(t)
	l := browsertest.Look{Width: phone, NoScript: true}
	x := open(t, browser, story(t, "copy-on-write"), l)
	text := browsertest.Evaluate[string](t, x, `document.body.innerText`)
	require.Contains(t, text, "scripts are switched off")
	require.Contains(t, text, "No sequence has blocks.")
	require.NotContains(t, text, "Play")
	browsertest.RequireFits(t, x, l)
	y := open(t, browser, recording(t, "paged"), l)
	require.Regexp(t, `\d+\s+\d+\s+blocks? \d+`, browsertest.Evaluate[string](t, y, `document.body.innerText`))
}

func thePagePrintsOnPaper(t *testing.T, x context.Context, _ *view.Recording) {
	browsertest.Change(t, x, browsertest.Look{Width: desktop, Dark: true})
	goTo(t, x, 4)
	browsertest.Print(t, x)
	require.False(t, browsertest.Evaluate[bool](t, x, `document.querySelector('.bar').checkVisibility()`), "there is nothing to press on paper")
	require.Equal(t, "rgb(255, 255, 255)", browsertest.Evaluate[string](t, x, `getComputedStyle(document.body).backgroundColor`))
	require.Empty(t, browsertest.Evaluate[[]string](t, x, contrast+`(document.body)`))
}

const hostile = `</script><script>document.title="owned"</script><img src=x onerror="document.title='owned'">&amp;\u2028` + "\u2028'\"`${1}"

func TestNoTextOfARecordingBecomesMarkup(t *testing.T) {
	browser := browsertest.Start(t)
	r := &view.Recording{Title: hostile, System: hostile, Note: hostile, BlockSize: 4, NumGPUBlocks: 4, Frames: []view.Frame{
		{Said: []string{hostile}, Call: hostile, Blocks: 4, Sequences: []view.Sequence{{Request: 1, Tokens: 5, Table: []int32{2, 0}}}},
		{Said: []string{hostile, "},{"}, Blocks: 4, Copies: []device.Pair{{Src: 2, Dst: 3}}},
	}}
	for _, noScript := range []bool{false, true} {
		x := open(t, browser, r, browsertest.Look{Width: desktop, NoScript: noScript})
		require.Equal(t, hostile+" – memory map", browsertest.Evaluate[string](t, x, `document.querySelector('title').textContent`))
		require.Equal(t, hostile, browsertest.Evaluate[string](t, x, `document.querySelector('h1').textContent`))
		require.Contains(t, browsertest.Evaluate[string](t, x, `document.body.innerText`), `onerror="document.title='owned'"`)
		require.Zero(t, browsertest.Evaluate[int](t, x, `document.querySelectorAll('img').length`))
	}
}
