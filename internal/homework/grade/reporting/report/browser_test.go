//go:build long

package report_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/grade/reporting/report"
	"llmmemory/internal/testkit/browsertest"
	"llmmemory/internal/testkit/level"
)

func init() { run = browsertest.Main }

const (
	phone, desktop = 375, 1280
	hostileFile    = "a#b %41?c:d.html"
)

func put(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var entries []report.Entry
	for id, r := range reports(t) {
		name, file := id, id+".html"
		if id == hostile {
			name, file = hostileName, hostileFile
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(student(t, r, name)), 0o644))
		entries = append(entries, entry(name, file, r))
	}
	entries = append(entries, entry("nobody", "", nil))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "class.html"), []byte(classPage(t, entries...)), 0o644))
	return dir
}

// contrast is JavaScript that lists the texts of a page with a contrast below 4.5 : 1 (WCAG, level AA).
const contrast = `(() => {
  const rgba = s => { const n = s.match(/[\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n }
  const over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3])).concat(1)
  const light = c => { const [r, g, b] = c.slice(0, 3).map(x => (x /= 255) <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b }
  const ground = e => { const layers = []; for (; e; e = e.parentElement) layers.push(rgba(getComputedStyle(e).backgroundColor)); return layers.reverse().reduce((below, c) => over(c, below), [255, 255, 255, 1]) }
  const bad = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  let seen = 0
  for (let n; n = walk.nextNode();) {
    const e = n.parentElement
    if (!n.data.trim() || !e.getClientRects().length || ['title', 'desc', 'style'].includes(e.localName)) continue
    const style = getComputedStyle(e), drawn = e.namespaceURI.endsWith('svg')
    const colour = rgba(drawn ? style.fill : style.color)
    let below = ground(e)
    if (drawn) below = over([...rgba(style.color).slice(0, 3), 0.1], below)
    const [a, b] = [light(over(colour, below)), light(below)]
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)
    seen++
    if (ratio < 4.5) bad.push(n.data.trim() + ': ' + ratio.toFixed(2))
  }
  return seen ? bad : ['no text']
})()`

func TestPagesInABrowser(t *testing.T) {
	ctx := browsertest.Start(t) // which says what to install
	dir := put(t)
	for i, name := range level.Pick([]string{"A1.html", "class.html", hostileFile}, []string{"A1.html", "class.html", "A8.html", "R14.html", "correct.html", "C38.html", hostileFile}) {
		views := []browsertest.Look{{Width: phone, Dark: true}, {Width: desktop}, {Width: phone}, {Width: desktop, Dark: true}}
		switch {
		case level.Exhaustive():
		case i == 0:
			views = views[:2]
		default:
			views = views[i%2 : i%2+1]
		}
		for j, v := range views {
			t.Run(fmt.Sprintf("%s at %d, dark %v", name, v.Width, v.Dark), func(t *testing.T) {
				v.NoScript = true
				tab := browsertest.Open(t, ctx, filepath.Join(dir, name), v)
				browsertest.RequireFits(t, tab, v)
				require.NotEqual(t, "caught", browsertest.Evaluate[string](t, tab, `document.title`), "a script of a submission has run")
				require.Empty(t, browsertest.Evaluate[[]string](t, tab, `[...document.querySelectorAll('figure pre')].filter(e => e.scrollWidth > e.clientWidth || e.clientHeight < 40).map(e => e.innerText)`), "a drawing is cut off")
				require.Empty(t, browsertest.Evaluate[[]string](t, tab, `[...document.querySelectorAll('.scroll tbody th')].filter(e => e.getBoundingClientRect().width < 120).map(e => e.innerText)`), "a name has no room")
				if browsertest.Evaluate[bool](t, tab, `!!document.querySelector('details')`) {
					requireKeyboardOpens(t, tab)
				}
				browsertest.Shoot(t, tab, fmt.Sprintf("%s-%d-dark-%v", strings.TrimSuffix(name, ".html"), v.Width, v.Dark))
				require.True(t, browsertest.Evaluate[bool](t, tab, `document.querySelectorAll('details').forEach(d => d.open = true), true`))
				browsertest.RequireFits(t, tab, v)
				require.Empty(t, browsertest.Evaluate[[]string](t, tab, contrast))
				require.True(t, browsertest.Evaluate[bool](t, tab, `document.querySelectorAll('details').forEach(d => d.open = false), true`))
				if j == 0 { // paper has one width and is white
					requirePrints(t, tab, strings.TrimSuffix(name, ".html")+".pdf")
				}
			})
		}
	}
}

func requireKeyboardOpens(t *testing.T, tab context.Context) {
	t.Helper()
	for range 60 {
		require.NoError(t, chromedp.Do(tab, chromedp.KeyEvent(kb.Tab)))
		if browsertest.Evaluate[bool](t, tab, `document.activeElement.localName == 'summary'`) {
			require.NotEqual(t, "none", browsertest.Evaluate[string](t, tab, `getComputedStyle(document.activeElement).outlineStyle`), "focus cannot be seen")
			require.NoError(t, chromedp.Do(tab, chromedp.KeyEvent(kb.Enter)))
			require.True(t, browsertest.Evaluate[bool](t, tab, `document.activeElement.parentElement.open`))
			require.Positive(t, browsertest.Evaluate[float64](t, tab, `document.activeElement.nextElementSibling.getBoundingClientRect().height`))
			return
		}
	}
	t.Fatal("Tab leads to no summary")
}

var pdfPage = regexp.MustCompile(`/Type\s*/Page\b`)

// requirePrints checks that folded parts are printed.
func requirePrints(t *testing.T, tab context.Context, name string) {
	t.Helper()
	pdf := browsertest.Run(t, tab, chromedp.PrintToPDF(chromedp.PDFPaper(chromedp.PaperA4)))
	require.NotEmpty(t, pdfPage.FindAll(pdf, -1))
	browsertest.Print(t, tab)
	require.Empty(t, browsertest.Evaluate[[]string](t, tab, `[...document.querySelectorAll('details > :not(summary)')].filter(e => !e.getBoundingClientRect().height || !e.checkVisibility({contentVisibilityAuto: true})).map(e => e.innerText)`), "it is folded in print")
	require.Empty(t, browsertest.Evaluate[[]string](t, tab, contrast))
	browsertest.Keep(t, name, pdf)
}

func TestEveryLinkOfTheClassLeadsSomewhere(t *testing.T) {
	ctx := browsertest.Start(t)
	dir := put(t)
	tab := browsertest.Open(t, ctx, filepath.Join(dir, "class.html"), browsertest.Look{Width: desktop, NoScript: true}, filepath.Join(dir, hostileFile))
	links := browsertest.Evaluate[[]string](t, tab, `[...document.querySelectorAll('a')].map(a => a.href)`)
	require.Greater(t, len(links), 20)
	for _, link := range links {
		target, err := url.Parse(link)
		require.NoError(t, err)
		require.Equal(t, "file", target.Scheme, link)
		text, err := os.ReadFile(target.Path)
		require.NoError(t, err, link)
		if target.Fragment != "" {
			require.Contains(t, parse(t, string(text)).ids, target.Fragment, link)
		}
	}
	require.NoError(t, chromedp.Do(tab, chromedp.Click(`//a[contains(., "Zoë")]`), chromedp.WaitVisible("#rejected")))
	require.Equal(t, hostileName+": 0 of 100 points", browsertest.Run(t, tab, chromedp.Title()))
}

func TestTheTableOfTheClassSortsAndFilters(t *testing.T) {
	ctx := browsertest.Start(t)
	file := filepath.Join(t.TempDir(), "index.html")
	require.NoError(t, os.WriteFile(file, []byte(page(t, everything(t))), 0o644))
	tab := browsertest.Open(t, ctx, file, browsertest.Look{Width: desktop})
	names := func() string {
		return browsertest.Evaluate[string](t, tab, `[...document.querySelectorAll('#table tbody tr:not([hidden])')].map(r => r.cells[0].dataset.v).join(' ')`)
	}
	column := func(n int) {
		require.NoError(t, chromedp.Do(tab, chromedp.Click(`//table[@id="table"]/thead/tr/th[`+string(rune('0'+n))+`]/button`)))
	}
	require.Equal(t, "ada bob cy dan eve flo gus hal ian", names())
	column(1)
	require.Equal(t, "ada bob cy dan eve flo gus hal ian", names())
	column(1)
	require.Equal(t, "ian hal gus flo eve dan cy bob ada", names())
	column(2) // points, the fewest first; who has none comes before
	require.Regexp(t, "^hal .* ada$", names())
	require.Equal(t, "ascending", browsertest.Evaluate[string](t, tab, `document.querySelector('#table th:nth-child(2)').getAttribute('aria-sort')`))
	column(2)
	require.Regexp(t, "^ada .* hal$", names())
	browsertest.Evaluate[bool](t, tab, `(() => { const s = document.querySelector('#search'); s.value = 'ASSEMBLY'; return s.dispatchEvent(new Event('input')) })()`)
	require.Equal(t, "eve", names())
	require.Equal(t, "1 of 9 students", browsertest.Evaluate[string](t, tab, `document.querySelector('#count').textContent`))
	browsertest.Evaluate[bool](t, tab, `(() => { document.querySelector('#search').value = ''; const s = document.querySelector('#show'); s.value = 'override'; return s.dispatchEvent(new Event('change')) })()`)
	require.Equal(t, "dan", names())
	browsertest.Shoot(t, tab, "class-sorted")
}
