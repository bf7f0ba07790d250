package browsertest

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A Look has the settings with which a page is viewed.
type Look struct {
	Width    int64 // CSS pixels; less than 600 is a phone
	Dark     bool
	Still    bool // prefers-reduced-motion
	NoScript bool // the page's scripts are off; what a test evaluates still runs
	Fragment string
}

// Open opens a file in a new tab. At the end of the test, it checks what the page has done. It must have reported no
// errors. It must have requested only this file and then the files in next, which the test visits later.
func Open(t testing.TB, browser context.Context, file string, l Look, next ...string) context.Context {
	t.Helper()
	address := url.URL{Scheme: "file", Path: file}
	expected := []string{address.String()}
	for _, file := range next {
		expected = append(expected, (&url.URL{Scheme: "file", Path: file}).String())
	}
	return visit(t, browser, address, l, func(asked []string) {
		assert.Equal(t, expected, asked, "a page requests only itself")
	})
}

// OpenLive opens the page of a server in a new tab. At the end of the test, it checks that the page has requested
// nothing from other servers and has reported no errors.
func OpenLive(t testing.TB, browser context.Context, address string, l Look) context.Context {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	return visit(t, browser, *u, l, func(asked []string) {
		for _, a := range asked {
			requested, err := url.Parse(a)
			require.NoError(t, err)
			assert.Equal(t, u.Host, requested.Host, "a page requests only from its server")
		}
	})
}

// visit opens an address in a new tab. At the end of the test, it calls check with the URLs that the tab has
// requested.
func visit(t testing.TB, browser context.Context, address url.URL, l Look, check func(asked []string)) context.Context {
	t.Helper()
	tab, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	tab, stop := context.WithTimeout(tab, 20*time.Minute) // does not measure speed
	t.Cleanup(stop)
	var seen events
	require.NoError(t, chromedp.Listen(tab, seen.note))
	command(t, tab, network.Enable, network.EnableParams{})
	command(t, tab, runtime.Enable, cdp.Empty{})
	command(t, tab, cdplog.Enable, cdp.Empty{})
	command(t, tab, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: l.NoScript})
	Change(t, tab, l)
	t.Cleanup(func() {
		seen.lock.Lock()
		defer seen.lock.Unlock()
		check(seen.requests)
		assert.Empty(t, seen.problems, "the page reports errors")
	})
	address.Fragment = l.Fragment
	require.NoError(t, chromedp.Do(tab, chromedp.Navigate(address.String())))
	return tab
}

// Change applies the width, the colour scheme and the setting prefers-reduced-motion of l to a tab. It does not load
// the page again.
func Change(t testing.TB, tab context.Context, l Look) {
	t.Helper()
	command(t, tab, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: l.Width, Height: 900, DeviceScaleFactor: 1, Mobile: l.Width < 600})
	scheme, motion := "light", "no-preference"
	if l.Dark {
		scheme = "dark"
	}
	if l.Still {
		motion = "reduce"
	}
	command(t, tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: motion},
	}})
}

// events records the requests and errors of a tab.
type events struct {
	lock               sync.Mutex
	requests, problems []string
}

func (s *events) note(event any) {
	s.lock.Lock()
	defer s.lock.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		s.requests = append(s.requests, e.Request.URL)
	case *runtime.EventExceptionThrown:
		s.problems = append(s.problems, e.ExceptionDetails.Text+" "+fmt.Sprint(e.ExceptionDetails.Exception))
	case *runtime.EventConsoleAPICalled:
		s.problems = append(s.problems, "console: "+string(e.Type))
	case *cdplog.EventEntryAdded:
		s.problems = append(s.problems, "log: "+e.Entry.Text)
	}
}
