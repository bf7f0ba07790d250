package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// A stream is a load of requests that have equal lengths and arrive at random times.
type stream struct {
	name           string
	requests       int
	rate           float64 // requests/s
	prompt, output int
}

// predict measures llmserve bench under four loads. It fits a cost file to the times of steps under the first
// three, and compares the fourth with a simulation.
func (b *bench) predict() error {
	dir, err := b.folder("llama", llama(b.small))
	if err != nil {
		return err
	}
	streams := []stream{{"a", 120, 30, 256, 96}, {"b", 200, 60, 128, 128}, {"c", 60, 15, 768, 64}, {"other", 150, 40, 192, 112}}
	if b.small {
		streams = []stream{{"a", 4, 100, 20, 4}, {"b", 5, 200, 9, 6}, {"c", 3, 50, 40, 3}, {"other", 4, 100, 15, 5}}
	}
	var steps []string
	for _, s := range streams {
		file := b.file(s.name)
		if _, err := b.output(b.llmserve, append([]string{"bench", dir, "--device", "cuda", "--num-prompts", fmt.Sprint(s.requests), "--request-rate", fmt.Sprint(s.rate),
			"--input-len", fmt.Sprint(s.prompt), "--output-len", fmt.Sprint(s.output), "--max-concurrency", "1000", "-o", file + ".json", "--steps", file + ".csv",
			"--arrivals", file + ".arrivals.csv"}, b.limits()...)...); err != nil {
			return err
		}
		steps = append(steps, file+".csv")
	}
	cost := b.file("cost") + ".json"
	if _, err := b.output(b.llmsim, append([]string{"calibrate", "-o", cost}, steps[:len(steps)-1]...)...); err != nil {
		return err
	}
	return b.simulate(cost, streams[len(streams)-1])
}

// simulate simulates a load with its measured arrival times, and compares the result with the measurements.
func (b *bench) simulate(cost string, s stream) error {
	var measured struct {
		Throughput float64 `json:"output_throughput"`
		First      float64 `json:"median_ttft_ms"`
		Token      float64 `json:"median_tpot_ms"`
	}
	var simulated struct {
		Result struct {
			Seconds  float64 `json:"seconds"`
			Answered int     `json:"answered"`
			First    struct {
				P50 float64 `json:"p50"`
			} `json:"first"`
			Between struct {
				P50 float64 `json:"p50"`
			} `json:"between"`
		} `json:"result"`
	}
	text, err := os.ReadFile(b.file(s.name) + ".json")
	if err == nil {
		err = json.Unmarshal(text, &measured)
	}
	if err != nil {
		return err
	}
	text, err = b.output(b.llmsim, "run", "--json", "--trace", b.file(s.name)+".arrivals.csv", "--cost", cost, "--blocks", "10000", "--max-seqs", "256",
		"--max-tokens", fmt.Sprint(b.pick(2048, 64)), "--max-len", fmt.Sprint(b.pick(2048, 128)))
	if err == nil {
		err = json.Unmarshal(text, &simulated)
	}
	if err != nil {
		return err
	}
	r := simulated.Result
	if r.Answered != s.requests {
		return fmt.Errorf("the simulation answers %d requests of %d", r.Answered, s.requests)
	}
	name := fmt.Sprintf("simulated: %v requests/s of %d + %d tokens", s.rate, s.prompt, s.output)
	throughput := float64(s.requests*s.output) / r.Seconds
	for _, q := range []struct {
		name, unit          string
		simulated, measured float64
	}{{"throughput", "tokens/s", throughput, measured.Throughput}, {"first token", "ms", 1e3 * r.First.P50, measured.First}, {"per token", "ms", 1e3 * r.Between.P50, measured.Token}} {
		if !(q.simulated > 0) || !(q.measured > 0) {
			return fmt.Errorf("%s: %v %s simulated, %v measured", q.name, q.simulated, q.unit, q.measured)
		}
		b.row(name, fmt.Sprintf("%s %.1f %s; measured %.1f; %.0f %% off", q.name, q.simulated, q.unit, q.measured, 100*math.Abs(q.simulated/q.measured-1)),
			q.simulated/q.measured, "", 0)
		name = ""
	}
	return nil
}

// file returns a path in the folder b.dir, without an extension. The callers add extensions, such as .json, to get the
// paths of the cost file and of the files with the measurements of a stream of requests.
func (b *bench) file(name string) string { return filepath.Join(b.dir, "load-"+name) }

// output runs a program and returns what it prints.
func (b *bench) output(program string, args ...string) ([]byte, error) {
	ctx, cancel := b.minute()
	defer cancel()
	c := b.child(ctx, program, args...)
	var errors strings.Builder
	c.Stderr = &errors
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", filepath.Base(program), args[0], err, strings.TrimSpace(errors.String()))
	}
	return out, err
}
