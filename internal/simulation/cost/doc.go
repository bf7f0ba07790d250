// Package cost computes, without a GPU, how long an iteration of a model takes and how many blocks of keys and
// values fit in memory.
//
//	setup, err := cost.Open("paper-opt-13b") // or a JSON file; README.md has the format
//	gpu, cpu, err := setup.Pool(16)
//	model, err := setup.Model(16)
//	clock += model.Seconds(work)
//
// A setup is a language model on a number of GPUs. Times come from a line fitted to measurements, or from a roofline.
// In a roofline, each part of an iteration takes as long as its memory traffic or its operations, whichever is
// slower.
//
// The block size affects the times of swaps and copies, but not the time of attention, although kernels may be
// slower with small blocks.
package cost
