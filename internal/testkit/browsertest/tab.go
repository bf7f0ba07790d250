package browsertest

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

func Evaluate[T any](t testing.TB, tab context.Context, script string) T {
	t.Helper()
	return Run(t, tab, chromedp.Evaluate[T](script))
}

func Run[T any](t testing.TB, tab context.Context, action chromedp.Action[T]) T {
	t.Helper()
	result, err := chromedp.Run(tab, action)
	require.NoError(t, err)
	return result
}

// Print shows the page as it is printed.
func Print(t testing.TB, tab context.Context) {
	t.Helper()
	command(t, tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"})
}

func RequireFits(t testing.TB, tab context.Context, l Look) {
	t.Helper()
	require.LessOrEqual(t, Evaluate[int64](t, tab, `document.documentElement.scrollWidth`), l.Width, "it has to be scrolled sideways")
}

// Shoot writes a screenshot if PICTURES names a folder.
func Shoot(t testing.TB, tab context.Context, name string) {
	t.Helper()
	if os.Getenv("PICTURES") != "" {
		Keep(t, name+".png", Run(t, tab, chromedp.FullScreenshot(100)))
	}
}

// Keep writes a file if PICTURES names a folder.
func Keep(t testing.TB, name string, bytes []byte) {
	t.Helper()
	if dir := os.Getenv("PICTURES"); dir != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), bytes, 0o644))
	}
}

func command[P any](t testing.TB, tab context.Context, c cdp.Command[P, cdp.Empty], params P) {
	t.Helper()
	_, err := chromedp.Call(tab, c, params)
	require.NoError(t, err)
}
