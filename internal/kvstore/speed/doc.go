// Package speed measures attention and the KV store against what the processor
// can do: reading the same bytes, multiplying and adding, copying. What is
// compared runs alternately in one process, and each figure is the median of the
// ratios of neighbours, so that other work on the machine falls on both sides.
// Nothing of the product may import it but llmbench; model's benchmarks read with the same loop.
package speed
