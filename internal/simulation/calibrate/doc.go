// Package calibrate turns what a user has measured on a machine into a cost file:
// a line through the times of iterations, with its residuals.
//
//	points, err := calibrate.Read("bench.jsonl", calibrate.Lengths{})
//	c, err := calibrate.Fit(points)
//	err = c.Save("my-gpu.json", "my-gpu", "where the measurements are from")
//
// It reads the JSON of vllm bench serve and of vllm bench latency, the JSONL of
// llama-batched-bench, and a CSV of iterations. Package cost uses
// cost files. This package does not simulate.
package calibrate
