// Package chart draws the figures of the simulator: lines, grouped bars and stacked bars, beside the
// paper's values. It writes a figure as SVG, as PNG of twice the size, and as CSV with every number drawn, and a page
// with all figures.
//
// A picture contains the figure's title, its kind (such as "predicted") and its seeds (such as "seeds 1-8"). The
// figure's note is only on the page. Lines differ in dashes and markers. Values beyond the end of an axis are cut off.
// Equal figures give equal bytes.
//
// The package knows nothing about experiments and systems, only numbers and names.
package chart
