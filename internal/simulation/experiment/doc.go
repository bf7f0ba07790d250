// Package experiment repeats the experiments of the PagedAttention paper (SOSP '23). It returns figures, and checks that
// compare the paper's values with ours. A check says whether our value is within its tolerance, and whether it was
// predicted, fitted, or only compared by order. The tolerances were set after a first trial in Python
// (simulation/PAPER.md §4).
//
// The paper's values are in targets.json. Package sim runs the experiments, and package chart draws the figures.
package experiment
