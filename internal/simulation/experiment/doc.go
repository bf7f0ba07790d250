// Package experiment repeats the experiments of the PagedAttention paper (SOSP '23). It returns figures to draw, and a
// comparison with each of the paper's values. A comparison says whether the value is within its tolerance, which was
// set after a first trial in Python (simulation/PAPER.md §4), and whether it was predicted, fitted, or compared by
// order only.
//
// The paper's figures are in targets.json. Package sim runs, package chart draws.
package experiment
