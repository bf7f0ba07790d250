//go:build long

package chart

import (
	"fmt"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/browsertest"
	"llmmemory/internal/testkit/level"
)

const phone, desktop = 390, 1280

const (
	// unnamed is JavaScript that finds pictures without a text description (aria-label).
	unnamed = `[...document.querySelectorAll('svg')].filter(e => !e.closest('[role=img]')?.ariaLabel.trim()).map(e => e.outerHTML.slice(0, 200))`
	// faint is JavaScript that finds texts with a contrast below 4.5 : 1 (WCAG, level AA).
	faint = `(() => {
  const rgb = s => s.match(/[\d.]+/g).map(Number)
  const light = c => { const [r, g, b] = c.slice(0, 3).map(x => (x /= 255) <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b }
  const below = light(rgb(getComputedStyle(document.body).backgroundColor)), bad = []
  for (const e of document.querySelectorAll('h1,h2,p,a,dd,span,th,td,caption,figcaption')) {
    const style = getComputedStyle(e), above = light(rgb(style.color))
    const ratio = (Math.max(above, below) + 0.05) / (Math.min(above, below) + 0.05)
    if (ratio < 4.5) bad.push(e.textContent + ': ' + ratio.toFixed(2))
  }
  return bad
})()`
	// twice is JavaScript that finds ids used by several elements. With such an id, a label could refer to the wrong
	// element.
	twice = `[...document.querySelectorAll('[id]')].map(e => e.id).filter((id, i, all) => all.indexOf(id) != i)`
)

func TestThePageInABrowser(t *testing.T) {
	in := browsertest.Start(t)
	dir := t.TempDir()
	figures := small()
	require.NoError(t, Write(dir, figures, comparison()...))
	for _, width := range []int64{phone, desktop} {
		for _, dark := range level.Pick([]bool{width == phone}, []bool{false, true}) {
			t.Run(fmt.Sprintf("%d dark %t", width, dark), func(t *testing.T) {
				look := browsertest.Look{Width: width, Dark: dark, NoScript: true}
				tab := browsertest.Open(t, in, filepath.Join(dir, "index.html"), look)
				requireWhole := func() {
					browsertest.RequireFits(t, tab, look)
					require.Empty(t, browsertest.Evaluate[[]string](t, tab, faint))
				}
				require.Equal(t, dark, browsertest.Evaluate[bool](t, tab,
					`getComputedStyle(document.body).backgroundColor != 'rgb(255, 255, 255)'`))
				requireWhole()
				browsertest.Shoot(t, tab, fmt.Sprintf("index-%d-dark-%t", width, dark))
				require.Len(t, figures, browsertest.Evaluate[int](t, tab, `document.querySelectorAll('figure svg').length`))
				require.Equal(t, 1, browsertest.Evaluate[int](t, tab, `document.querySelectorAll('table').length`))
				require.Empty(t, browsertest.Evaluate[[]string](t, tab, unnamed))
				require.Empty(t, browsertest.Evaluate[[]string](t, tab, twice))
				require.Equal(t, 0, browsertest.Evaluate[int](t, tab, `document.querySelectorAll('script, main b').length`),
					"a text has become markup")
				browsertest.Print(t, tab)
				require.Equal(t, "rgb(255, 255, 255)",
					browsertest.Evaluate[string](t, tab, `getComputedStyle(document.body).backgroundColor`))
			})
		}
	}
	tab := browsertest.Open(t, in, filepath.Join(dir, "index.html"), browsertest.Look{Width: desktop, NoScript: true})
	links := browsertest.Evaluate[[]string](t, tab, `[...document.querySelectorAll('a')].map(a => a.href)`)
	require.Greater(t, len(links), 4*len(figures))
	for _, link := range links {
		to, err := url.Parse(link)
		require.NoError(t, err)
		require.FileExists(t, to.Path)
		if to.Fragment != "" {
			require.True(t, browsertest.Evaluate[bool](t, tab, fmt.Sprintf(`!!document.getElementById(%q)`, to.Fragment)), link)
		}
	}
}
