// Package chart draws the figures of the simulator: lines, grouped bars and
// stacked bars, ours beside the paper's. A figure becomes an SVG, a PNG of twice
// the size and a CSV of every number drawn; all of them together become a page.
//
// A picture must be understandable alone and readable without colour. So it shows its
// kind, its seeds and its note; lines differ in dashes and markers, bars in their
// pattern; and what is beyond an axis is cut off with an arrow. The same figures
// give the same bytes.
//
// What the numbers mean is not known here: outside the tests no experiment and no
// system of the paper may be named.
package chart
