// Package browsertest shows pages to the tests in headless Chromium: it starts the
// browser, opens tabs, and watches what a page asks for and complains about. Only
// tests import it. What a page has to look like stays with the page's own tests.
package browsertest
