// Package chart draws the figures of the simulator with gonum/plot: lines, grouped bars and stacked bars,
// beside the paper's values. It writes a figure as SVG, as PNG of twice the size, and as CSV with every
// number drawn, and a page with all figures.
//
// A picture contains its title, its kind and its runs; its note is only on the page. Lines differ in dashes
// and markers. Values beyond the end of an axis are cut off. Equal figures give equal bytes.
//
// The package knows nothing about experiments and systems, only numbers and names.
package chart
