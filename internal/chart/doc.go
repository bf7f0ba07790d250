// Package chart draws the figures of the simulator: lines, grouped bars and
// stacked bars, ours beside the paper's. A figure becomes an SVG, a PNG of twice
// the size and a CSV of every number drawn; all of them together become a page.
//
// A picture must be understandable alone and readable without colour. So it shows its
// kind, its seeds and its note; lines differ in dashes and markers, bars in their
// pattern; and values beyond an axis are clipped and marked with an arrow. The same
// figures give the same bytes.
//
// This package does not know what the numbers mean: outside the tests it names no
// experiment and no system of the paper.
package chart
