// Package chart draws the figures of the simulator with gonum/plot: lines, grouped bars and stacked bars, beside the
// paper's values. A figure is written as an SVG, as a PNG of twice the size, and as a CSV with every number drawn. A
// page has all figures.
//
// A picture shows its title, its kind and its runs; its note is on the page. Lines differ in dashes and markers.
// Values beyond the end of an axis are cut. Equal figures give equal bytes.
//
// The package does not depend on what the numbers mean: it names no experiment and no system.
package chart
