// Package calibrate makes a cost file from a user's measurements: a line fitted to the times of iterations, and the
// errors of the line. It reads the JSON of vllm bench serve and of vllm bench latency, the JSONL of
// llama-batched-bench, and CSV files of iterations.
//
//	points, err := calibrate.Read("bench.jsonl", calibrate.Lengths{})
//	c, err := calibrate.Fit(points)
//	err = c.Save("my-gpu.json", "my-gpu", "where the measurements are from")
//
// Package cost uses the cost files.
package calibrate
