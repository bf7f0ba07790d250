// Package experiment repeats the experiments of the PagedAttention paper
// (SOSP '23): which runs a figure needs, what is averaged over which time, and
// what the paper prints beside it. It gives figures to draw, and the honest
// comparison: whether what the paper prints is met, within tolerances that were
// set after a first trial in Python (sim/PAPER.md §4), and whether a number was predicted, fitted or counts
// only as an order.
//
// The paper's figures are in targets.json. How a run goes is package sim's
// business, how a figure looks package chart's.
package experiment
