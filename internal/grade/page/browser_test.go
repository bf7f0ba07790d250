package page_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"llmmemory/internal/grade/page"
)

const phone, desktop = 375, 1280

// browser starts headless Chromium, with nothing of its own to ask the network.
func browser(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	require.NoError(t, err, "the pages are tested in Chromium: as root, apt-get install chromium")
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

// A view is how a page is looked at.
type view struct {
	width int64
	dark  bool
}

// open shows a file without JavaScript in a tab of its own. What a test evaluates
// runs all the same.
func open(t *testing.T, in context.Context, file string, v view) context.Context {
	t.Helper()
	ctx, cancel := chromedp.NewContext(in)
	t.Cleanup(cancel)
	var lock sync.Mutex
	var asked []string
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		if e, is := event.(*network.EventRequestWillBeSent); is {
			lock.Lock()
			defer lock.Unlock()
			asked = append(asked, e.Request.URL)
		}
	}))
	scheme := "light"
	if v.dark {
		scheme = "dark"
	}
	address := (&url.URL{Scheme: "file", Path: file}).String()
	command(t, ctx, network.Enable, network.EnableParams{})
	command(t, ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	command(t, ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: v.width, Height: 800, DeviceScaleFactor: 1, Mobile: v.width == phone})
	command(t, ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(address)))
	lock.Lock()
	defer lock.Unlock()
	require.Equal(t, []string{address}, asked, "a page asks for nothing but itself")
	return ctx
}

// command is one of the DevTools protocol.
func command[P any](t *testing.T, tab context.Context, c cdp.Command[P, cdp.Empty], params P) {
	t.Helper()
	_, err := chromedp.Call(tab, c, params)
	require.NoError(t, err)
}

func evaluate[T any](t *testing.T, tab context.Context, script string) T {
	t.Helper()
	return run(t, tab, chromedp.Evaluate[T](script))
}

func run[T any](t *testing.T, tab context.Context, action chromedp.Action[T]) T {
	t.Helper()
	result, err := chromedp.Run(tab, action)
	require.NoError(t, err)
	return result
}

// put writes the pages of a class, one with a hostile name, and returns the folder.
func put(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var entries []page.Entry
	for id, r := range reports(t) {
		name, file := id, id+".html"
		if id == hostile {
			name, file = hostileName, "a#b %41?c:d.html"
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(student(t, r, name)), 0o644))
		entries = append(entries, page.Entry{Name: name, File: file, Report: r})
	}
	entries = append(entries, page.Entry{Name: "nobody", Trouble: "read the submission: no such file"})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "class.html"), []byte(class(t, entries)), 0o644))
	return dir
}

// contrast lists the texts with less than 4.5 : 1 (WCAG, AA). In a drawing a text
// may lie on a tenth of the text's own colour.
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
	ctx := browser(t) // which says what to install
	dir := put(t)
	for i, name := range []string{"A1.html", "class.html", "A8.html", "R14.html", "correct.html", "C38.html", "a#b %41?c:d.html"} {
		views := []view{{phone, true}, {desktop, false}, {phone, false}, {desktop, true}}
		if i > 1 {
			views = views[:2]
		}
		for _, v := range views {
			t.Run(fmt.Sprintf("%s at %d, dark %v", name, v.width, v.dark), func(t *testing.T) {
				tab := open(t, ctx, filepath.Join(dir, name), v)
				requireFits(t, tab, v)
				require.NotEqual(t, "caught", evaluate[string](t, tab, `document.title`), "a script of a submission has run")
				require.Empty(t, evaluate[[]string](t, tab, `[...document.querySelectorAll('figure svg')].filter(e => { const r = e.getBoundingClientRect(); return r.width < 200 || r.height < 40 }).map(e => e.outerHTML)`), "a drawing cannot be seen")
				require.Empty(t, evaluate[[]string](t, tab, `[...document.querySelectorAll('.scroll tbody th')].filter(e => e.getBoundingClientRect().width < 120).map(e => e.innerText)`), "a name has no room")
				if name == "A1.html" {
					require.Equal(t, 6, evaluate[int](t, tab, `document.querySelectorAll('figure svg').length`))
				}
				if evaluate[bool](t, tab, `!!document.querySelector('details')`) {
					requireKeyboardOpens(t, tab)
				}
				shoot(t, tab, fmt.Sprintf("%s-%d-dark-%v.png", strings.TrimSuffix(name, ".html"), v.width, v.dark))
				require.True(t, evaluate[bool](t, tab, `document.querySelectorAll('details').forEach(d => d.open = true), true`))
				requireFits(t, tab, v)
				require.Empty(t, evaluate[[]string](t, tab, contrast))
				require.True(t, evaluate[bool](t, tab, `document.querySelectorAll('details').forEach(d => d.open = false), true`))
				requirePrints(t, tab, strings.TrimSuffix(name, ".html")+".pdf")
			})
		}
	}
}

func requireFits(t *testing.T, tab context.Context, v view) {
	t.Helper()
	require.LessOrEqual(t, evaluate[int64](t, tab, `document.documentElement.scrollWidth`), v.width, "it has to be scrolled sideways")
}

// requireKeyboardOpens goes from the top to the first summary with Tab.
func requireKeyboardOpens(t *testing.T, tab context.Context) {
	t.Helper()
	for range 60 {
		require.NoError(t, chromedp.Do(tab, chromedp.KeyEvent(kb.Tab)))
		if evaluate[bool](t, tab, `document.activeElement.localName == 'summary'`) {
			require.NotEqual(t, "none", evaluate[string](t, tab, `getComputedStyle(document.activeElement).outlineStyle`), "focus cannot be seen")
			require.NoError(t, chromedp.Do(tab, chromedp.KeyEvent(kb.Enter)))
			require.True(t, evaluate[bool](t, tab, `document.activeElement.parentElement.open`))
			require.Positive(t, evaluate[float64](t, tab, `document.activeElement.nextElementSibling.getBoundingClientRect().height`))
			return
		}
	}
	t.Fatal("Tab leads to no summary")
}

var pdfPage = regexp.MustCompile(`/Type\s*/Page\b`)

// requirePrints prints with what is folded on the screen.
func requirePrints(t *testing.T, tab context.Context, name string) {
	t.Helper()
	pdf := run(t, tab, chromedp.PrintToPDF(chromedp.PDFPaper(chromedp.PaperA4)))
	require.NotEmpty(t, pdfPage.FindAll(pdf, -1))
	command(t, tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"})
	require.Empty(t, evaluate[[]string](t, tab, `[...document.querySelectorAll('details > :not(summary)')].filter(e => !e.getBoundingClientRect().height || !e.checkVisibility({contentVisibilityAuto: true})).map(e => e.innerText)`), "it is folded in print")
	require.Empty(t, evaluate[[]string](t, tab, contrast))
	keep(t, name, pdf)
}

// shoot and keep leave what a human should look at, where PICTURES names a folder.
func shoot(t *testing.T, tab context.Context, name string) {
	t.Helper()
	if os.Getenv("PICTURES") == "" {
		return
	}
	keep(t, name, run(t, tab, chromedp.FullScreenshot(100)))
}

func keep(t *testing.T, name string, bytes []byte) {
	t.Helper()
	if dir := os.Getenv("PICTURES"); dir != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), bytes, 0o644))
	}
}

func TestEveryLinkOfTheClassLeadsSomewhere(t *testing.T) {
	ctx := browser(t)
	dir := put(t)
	tab := open(t, ctx, filepath.Join(dir, "class.html"), view{desktop, false})
	links := evaluate[[]string](t, tab, `[...document.querySelectorAll('a')].map(a => a.href)`)
	require.Greater(t, len(links), 20)
	for _, link := range links {
		to, err := url.Parse(link)
		require.NoError(t, err)
		require.Equal(t, "file", to.Scheme, link)
		text, err := os.ReadFile(to.Path)
		require.NoError(t, err, link)
		if to.Fragment != "" {
			require.Contains(t, parse(t, string(text)).ids, to.Fragment, link)
		}
	}
	require.NoError(t, chromedp.Do(tab, chromedp.Click(`//a[contains(., "Zoë")]`), chromedp.WaitVisible("#rejected")))
	require.Equal(t, hostileName+": 0 of 100 points", run(t, tab, chromedp.Title()))
}
