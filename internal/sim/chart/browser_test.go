package chart

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

const phone, desktop = 390, 1280

// browser starts headless Chromium, with nothing of its own to ask the network.
func browser(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	require.NoError(t, err, "the page is tested in Chromium: as root, apt-get install chromium")
	dir, err := os.MkdirTemp("", "chromium-")
	require.NoError(t, err)
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.UserDataDir(dir), chromedp.Headless, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.WSURLReadTimeout(time.Minute),
	}
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx)
		cancel()
		stop()
		require.NoError(t, os.RemoveAll(dir))
	})
	require.NoError(t, chromedp.Do(ctx))
	return ctx
}

// open shows a file without scripts. What a test evaluates runs all the same.
func open(t *testing.T, in context.Context, file string, width int64, scheme string) context.Context {
	t.Helper()
	tab, cancel := chromedp.NewContext(in)
	t.Cleanup(cancel)
	var lock sync.Mutex
	var asked []string
	require.NoError(t, chromedp.Listen(tab, func(event any) {
		if e, is := event.(*network.EventRequestWillBeSent); is {
			lock.Lock()
			defer lock.Unlock()
			asked = append(asked, e.Request.URL)
		}
	}))
	address := (&url.URL{Scheme: "file", Path: file}).String()
	command(t, tab, network.Enable, network.EnableParams{})
	command(t, tab, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	command(t, tab, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 800, DeviceScaleFactor: 1, Mobile: width == phone})
	command(t, tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	require.NoError(t, chromedp.Do(tab, chromedp.Navigate(address)))
	lock.Lock()
	defer lock.Unlock()
	require.Equal(t, []string{address}, asked, "the page asks for nothing but itself")
	return tab
}

func command[P any](t *testing.T, tab context.Context, c cdp.Command[P, cdp.Empty], params P) {
	t.Helper()
	_, err := chromedp.Call(tab, c, params)
	require.NoError(t, err)
}

func evaluate[T any](t *testing.T, tab context.Context, script string) T {
	t.Helper()
	result, err := chromedp.Run(tab, chromedp.Evaluate[T](script))
	require.NoError(t, err)
	return result
}

// keep leaves a picture for a human, where PICTURES names a folder.
func keep(t *testing.T, tab context.Context, name string) {
	t.Helper()
	dir := os.Getenv("PICTURES")
	if dir == "" {
		return
	}
	picture, err := chromedp.Run(tab, chromedp.FullScreenshot(100))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), picture, 0o644))
}

const (
	// collisions are texts of a drawing that lie on one another, or leave it.
	// A line of text is taller than its letters.
	collisions = `[...document.querySelectorAll('figure svg')].flatMap(svg => {
  const all = [...svg.querySelectorAll('text')].filter(e => e.textContent.trim()).map(e => {
    const r = e.getBoundingClientRect(), upright = r.height > 1.5 * r.width && e.textContent.length > 2
    const dx = upright ? r.width * .2 : 0, dy = upright ? 0 : r.height * .2
    return {text: e.textContent, l: r.left + dx, r: r.right - dx, t: r.top + dy, b: r.bottom - dy}
  })
  const box = svg.getBoundingClientRect(), bad = all.length ? [] : ['no text']
  all.forEach((a, i) => {
    if (a.l < box.left || a.r > box.right || a.t < box.top || a.b > box.bottom) bad.push(a.text + ' leaves its drawing')
    for (const b of all.slice(0, i)) if (a.l < b.r && b.l < a.r && a.t < b.b && b.t < a.b) bad.push(a.text + ' lies on ' + b.text)
  })
  return bad
})`
	// unnamed are drawings that say nothing to who cannot see them.
	unnamed = `[...document.querySelectorAll('svg, img')].filter(e => e.getAttribute('role') != 'img' ||
  !e.getAttribute('aria-labelledby') || e.getAttribute('aria-labelledby').split(' ').some(id => !document.getElementById(id)?.textContent.trim())).map(e => e.outerHTML.slice(0, 200))`
	// faint are texts with less than 4.5 : 1 on their ground (WCAG, AA).
	faint = `(() => {
  const rgb = s => s.match(/[\d.]+/g).map(Number)
  const light = c => { const [r, g, b] = c.slice(0, 3).map(x => (x /= 255) <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b }
  const below = light(rgb(getComputedStyle(document.body).backgroundColor)), bad = []
  for (const e of document.querySelectorAll('h1,h2,p,a,dd,span,th,td,caption,figcaption,summary,svg text')) {
    const style = getComputedStyle(e), above = light(rgb(e.localName == 'text' ? style.fill : style.color))
    const ratio = (Math.max(above, below) + 0.05) / (Math.min(above, below) + 0.05)
    if (ratio < 4.5) bad.push(e.textContent + ': ' + ratio.toFixed(2))
  }
  return bad
})()`
	// ids that occur twice would label the wrong drawing.
	twice = `[...document.querySelectorAll('[id]')].map(e => e.id).filter((id, i, all) => all.indexOf(id) != i)`
)

func TestThePageInABrowser(t *testing.T) {
	in := browser(t)
	dir := t.TempDir()
	figures := append(scenes(), small()...)
	require.NoError(t, Write(dir, figures, comparison()...))
	for _, width := range []int64{phone, desktop} {
		for _, scheme := range []string{"light", "dark"} {
			t.Run(fmt.Sprintf("%d %s", width, scheme), func(t *testing.T) {
				tab := open(t, in, filepath.Join(dir, "index.html"), width, scheme)
				requireWhole := func() {
					require.LessOrEqual(t, evaluate[int64](t, tab, `document.documentElement.scrollWidth`), width, "it has to be scrolled sideways")
					require.Empty(t, evaluate[[]string](t, tab, faint))
				}
				require.Equal(t, scheme == "dark", evaluate[bool](t, tab, `getComputedStyle(document.body).backgroundColor != 'rgb(255, 255, 255)'`))
				requireWhole()
				keep(t, tab, fmt.Sprintf("index-%d-%s.png", width, scheme))
				require.Len(t, figures, evaluate[int](t, tab, `document.querySelectorAll('figure svg').length`))
				require.Equal(t, len(figures)+1, evaluate[int](t, tab, `document.querySelectorAll('table').length`))
				require.Empty(t, evaluate[[]string](t, tab, unnamed))
				require.Empty(t, evaluate[[]string](t, tab, twice))
				require.Empty(t, evaluate[[]string](t, tab, collisions))
				require.Equal(t, 0, evaluate[int](t, tab, `document.querySelectorAll('script, main b').length`), "a text has become markup")
				require.True(t, evaluate[bool](t, tab, `document.querySelectorAll('details').forEach(d => d.open = true), true`))
				requireWhole()
				keep(t, tab, fmt.Sprintf("index-%d-%s-open.png", width, scheme))
				require.True(t, evaluate[bool](t, tab, `document.querySelectorAll('details').forEach(d => d.open = false), true`))
				command(t, tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"})
				require.Equal(t, 0, evaluate[int](t, tab, `[...document.querySelectorAll('details > div')].filter(e => !e.getBoundingClientRect().height || !e.checkVisibility({contentVisibilityAuto: true})).length`), "it is folded in print")
				require.Equal(t, "rgb(255, 255, 255)", evaluate[string](t, tab, `getComputedStyle(document.body).backgroundColor`))
			})
		}
	}
	tab := open(t, in, filepath.Join(dir, "index.html"), desktop, "light")
	links := evaluate[[]string](t, tab, `[...document.querySelectorAll('a')].map(a => a.href)`)
	require.Greater(t, len(links), 4*len(figures))
	for _, link := range links {
		to, err := url.Parse(link)
		require.NoError(t, err)
		require.FileExists(t, to.Path)
		if to.Fragment != "" {
			require.True(t, evaluate[bool](t, tab, fmt.Sprintf(`!!document.getElementById(%q)`, to.Fragment)), link)
		}
	}
}
