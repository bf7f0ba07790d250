// Package speed measures attention and the KV store against what the processor
// can do: reading the same bytes, multiplying and adding, copying. The two sides of
// a comparison run alternately in one process, and each figure is the median of the
// ratios of adjacent runs, so that other programs disturb both sides alike. Only
// llmbench may import it, and model's benchmarks, which read with the same loop.
package speed
