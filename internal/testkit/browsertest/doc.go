// Package browsertest opens pages in headless Chromium. It starts the browser, opens tabs, and records the requests
// and error messages of a page. Only tests import it. The tests of a page decide what the page must look like.
package browsertest
