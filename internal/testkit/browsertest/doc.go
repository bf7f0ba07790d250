// Package browsertest opens pages in headless Chromium: it starts the browser, opens tabs, and records a page's
// requests and error messages. Only tests import it. How a page must look is up to the tests of the page.
package browsertest
