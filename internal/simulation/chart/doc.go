// Package chart draws the figures of the simulator with gonum/plot: lines, grouped bars and stacked bars, beside the
// paper's values. A figure becomes an SVG, a PNG of twice the size and a CSV of every number drawn; a page has all
// figures.
//
// A picture has its title, its kind and its runs; its note is on the page. Lines differ in dashes and markers. Values
// beyond an axis are cut. Equal figures give equal bytes.
//
// The package does not depend on what the numbers mean: it names no experiment and no system.
package chart
