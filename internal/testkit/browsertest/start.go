package browsertest

import (
	"context"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// browser is the browser that all tests of a package use, because starting it takes longer than a test.
var browser struct {
	sync.Mutex
	tabs context.Context // the context of new tabs, or nil if the browser does not run
	stop func()
}

// Main runs the tests of a package and then ends the browser. A package whose tests call Start must call Main in
// TestMain.
func Main(m *testing.M) (status int) {
	browser.stop = func() {}
	status = m.Run()
	browser.stop()
	return status
}

// Start returns the context in which tests open new tabs of headless Chromium. It starts the browser if necessary; the
// browser runs until the tests of the package have ended, and itself requests nothing from the network. With -short,
// Start skips the test.
func Start(t testing.TB) context.Context {
	t.Helper()
	level.SkipQuick(t)
	browser.Lock()
	defer browser.Unlock()
	require.NotNil(t, browser.stop, "TestMain has to call browsertest.Main")
	if browser.tabs == nil {
		start(t)
	}
	return browser.tabs
}

func start(t testing.TB) {
	t.Helper()
	path, err := exec.LookPath("chromium")
	require.NoError(t, err, "the pages are tested in Chromium: as root, apt-get install chromium")
	dir, err := os.MkdirTemp("", "chromium-")
	require.NoError(t, err)
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.UserDataDir(dir), chromedp.Headless, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		// Without these flags, each window renders two hidden pages for search suggestions, and there are more
		// processes.
		chromedp.Flag("disable-features", "WebUIOmniboxPopup,WebUIOmniboxAimPopup"), chromedp.Flag("disable-extensions", true),
		chromedp.Flag("enable-features", "NetworkServiceInProcess2"), chromedp.Flag("in-process-gpu", true),
		chromedp.Flag("renderer-process-limit", "1"),
		chromedp.WSURLReadTimeout(10 * time.Minute),
	}
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	browser.stop = func() {
		_ = chromedp.Cancel(ctx)
		cancel()
		stop()
		_ = os.RemoveAll(dir)
	}
	require.NoError(t, chromedp.Do(ctx))
	browser.tabs = ctx
}
