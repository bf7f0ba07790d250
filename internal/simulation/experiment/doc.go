// Package experiment repeats the experiments of the PagedAttention paper
// (SOSP '23): which runs a figure needs, what is averaged over which time, and
// what the paper prints beside it. It returns figures to draw, and a comparison
// for each of the paper's values: whether the value is met within its tolerance, which was set
// after a first trial in Python (simulation/PAPER.md §4), and whether it was predicted, fitted, or
// compared by order only.
//
// The paper's figures are in targets.json. Package sim runs, package chart draws.
package experiment
