// Package cost says how long an iteration of a model takes and how many blocks
// of its keys and values fit, for a simulator that has no GPU.
//
//	setup, err := cost.Open("paper-opt-13b") // or a JSON file; README.md has the format
//	gpu, cpu, err := setup.Pool(16)
//	model, err := setup.Model(16)
//	clock += model.Seconds(work)
//
// A setup is a language model on a number of GPUs. The time comes from a line fitted
// to measurements, where there are some, or from a roofline: each part of an
// iteration takes as long as its bytes or its operations, whichever is slower.
//
// The block size changes the time of swaps and copies, not of attention: what
// small blocks cost a kernel is not known here. Schedulers, clocks and workloads
// may not live here.
package cost
