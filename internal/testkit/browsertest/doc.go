// Package browsertest shows pages in headless Chromium: it starts the browser, opens tabs, and
// records what a page requests and complains about. Only tests import it. How a page has to look
// is decided in the tests of that page.
package browsertest
