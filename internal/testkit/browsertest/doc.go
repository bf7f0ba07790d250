// Package browsertest opens pages in headless Chromium: it starts the browser, opens tabs, and records a page's
// requests and error messages. Only tests import it. The tests of a page decide how it must look.
package browsertest
