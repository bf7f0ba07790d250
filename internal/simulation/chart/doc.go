// Package chart draws the figures of the simulator: lines, grouped bars and
// stacked bars, ours beside the paper's. A figure becomes an SVG, a PNG of twice
// the size and a CSV of every number drawn; all of them together become a page.
//
// gonum/plot draws them. A picture shows its title, its kind and its seeds; its note is on the page. Lines differ in
// dashes and markers, and values beyond an axis are cut. The same figures give the same bytes.
//
// This package does not know what the numbers mean: outside the tests it names no
// experiment and no system of the paper.
package chart
