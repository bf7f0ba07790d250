// Package browsertest shows pages to the tests in headless Chromium: it starts the
// browser, opens tabs, and watches what a page asks for and complains about. Only
// tests import it. How a page has to look is in the tests of that page.
package browsertest
