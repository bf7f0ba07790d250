// Package experiment repeats the experiments of the PagedAttention paper
// (SOSP '23): which runs a figure needs, what is averaged over which time, and
// what the paper prints beside it. It gives figures to draw, and comparisons:
// whether the paper's value is met, within tolerances that were
// set after a first trial in Python (sim/PAPER.md §4), and whether a number was predicted,
// fitted, or counts only as an order.
//
// The paper's figures are in targets.json. Package sim runs, package chart draws.
package experiment
