package experiment

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"llmmemory/internal/simulation/chart"
	"llmmemory/internal/simulation/cost"
	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
)

// Served has measurements of llmserve on one machine. The script internal/bench/simulated.sh made them: it ran llmserve
// under several loads. It also made a cost file, with llmsim calibrate, from the times of steps under other loads.
type Served struct {
	Machine string        `json:"machine"`
	Date    string        `json:"date"`
	Cost    cost.Measured `json:"cost"`
	Runs    []ServedRun   `json:"runs"`
}

// A ServedRun is one run of llmserve bench: its requests and its measurements. Measurements have the names of vllm
// bench serve.
type ServedRun struct {
	Load     string    `json:"load"`     // several runs have the same
	Prompt   int       `json:"prompt"`   // tokens
	Output   int       `json:"output"`   // tokens
	Arrivals []float64 `json:"arrivals"` // s
	Measured struct {
		Throughput float64 `json:"output_throughput"` // tokens/s
		MedianTTFT float64 `json:"median_ttft_ms"`
		P90TTFT    float64 `json:"p90_ttft_ms"`
		MedianTPOT float64 `json:"median_tpot_ms"`
		P90TPOT    float64 `json:"p90_tpot_ms"`
	} `json:"measured"`
}

//go:embed serving.json
var servingJSON []byte

// servedLimits are the limits of llmserve bench in simulated.sh, except NumGPUBlocks: these blocks are more than
// MaxNumSeqs requests of the simulated loads need.
var servedLimits = sim.Server{System: "vllm-v1", BlockSize: 16, NumGPUBlocks: 2000, MaxNumBatchedTokens: 512,
	MaxNumSeqs: 64, MaxModelLen: 1024}

// servedMetrics are the quantities that are compared, and the highest allowed error of the simulation in percent.
var servedMetrics = []struct {
	name, unit string
	percent    float64
	measured   func(*ServedRun) float64
	simulated  func(*ServedRun, *sim.Result) float64
}{
	{"throughput", "tokens/s", 10, func(r *ServedRun) float64 { return r.Measured.Throughput }, throughput},
	{"time to first token, median", "ms", 15, func(r *ServedRun) float64 { return r.Measured.MedianTTFT },
		func(_ *ServedRun, r *sim.Result) float64 { return 1e3 * r.TTFT.P50 }},
	{"time to first token, p90", "ms", 25, func(r *ServedRun) float64 { return r.Measured.P90TTFT },
		func(_ *ServedRun, r *sim.Result) float64 { return 1e3 * r.TTFT.P90 }},
	{"time per token, median", "ms", 15, func(r *ServedRun) float64 { return r.Measured.MedianTPOT },
		func(_ *ServedRun, r *sim.Result) float64 { return 1e3 * r.TPOT.P50 }},
	{"time per token, p90", "ms", 25, func(r *ServedRun) float64 { return r.Measured.P90TPOT },
		func(_ *ServedRun, r *sim.Result) float64 { return 1e3 * r.TPOT.P90 }},
}

// throughput returns the generated tokens per second since the start of the measurement. r.Seconds is the time since
// the first request. throughput adds the time from the start of the measurement to the first request, and divides the
// number of tokens by the sum.
func throughput(run *ServedRun, r *sim.Result) float64 {
	return float64(r.Generated) / (run.Arrivals[0] + r.Seconds)
}

// served simulates the runs of llmserve, with the same scheduler and arrival times, and compares medians over
// the runs of each load. These runs were not used to fit the cost file.
func (b *bench) served() error {
	s := embedded[Served](servingJSON)
	results, err := b.simulate(&s)
	if err != nil {
		return err
	}
	var loads []string
	for i := range s.Runs {
		if !slices.Contains(loads, s.Runs[i].Load) {
			loads = append(loads, s.Runs[i].Load)
		}
	}
	figure := chart.Figure{
		Name: "served", Title: "Simulated against measured: llmserve", Kind: chart.Predicted, Reference: "measured",
		Seeds: fmt.Sprintf("medians of %d runs of each load", len(s.Runs)/len(loads)),
		Note: fmt.Sprintf("%s; %s. The time of a step is %s: under other loads. internal/bench/simulated.sh measures anew.",
			s.Machine, s.Date, s.Cost.Fit),
	}
	for _, m := range servedMetrics {
		measured, simulated := chart.Series{Name: "measured"}, chart.Series{Name: "simulated"}
		for _, load := range loads {
			var real, ours []float64
			for i := range s.Runs {
				if s.Runs[i].Load == load {
					real, ours = append(real, m.measured(&s.Runs[i])), append(ours, m.simulated(&s.Runs[i], results[i]))
				}
			}
			measured.Values, simulated.Values = append(measured.Values, one(median(real))),
				append(simulated.Values, one(median(ours)))
			b.checkWithinPercent(chart.Predicted, fmt.Sprintf("llmserve, %s: %s (%s)", load, m.name, m.unit),
				one(median(ours)),
				median(real), m.percent)
			b.compareWith("measured")
		}
		figure.Panels = append(figure.Panels, bars(m.name, "load", chart.YAxis{Title: m.unit}, loads, measured, simulated))
	}
	b.add(figure)
	return nil
}

// simulate simulates each run. It writes the requests and the cost file to temporary files, because a scenario
// contains the names of these files and not their contents.
func (b *bench) simulate(s *Served) ([]*sim.Result, error) {
	dir, err := os.MkdirTemp("", "served")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	line := filepath.Join(dir, "cost.json")
	text, err := json.Marshal(s.Cost)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(line, text, 0o600); err != nil {
		return nil, err
	}
	var all []scenario.Scenario
	for i := range s.Runs {
		r := &s.Runs[i]
		rows := []string{"arrival,prompt,output"}
		for _, arrival := range r.Arrivals {
			rows = append(rows, fmt.Sprintf("%.6f,%d,%d", arrival, r.Prompt, r.Output))
		}
		trace := filepath.Join(dir, fmt.Sprintf("%d.csv", i))
		if err := os.WriteFile(trace, []byte(strings.Join(rows, "\n")), 0o600); err != nil {
			return nil, err
		}
		all = append(all, scenario.Scenario{Load: scenario.Load{Trace: trace}, Machine: scenario.Machine{Cost: line},
			Server: servedLimits})
	}
	return b.run(all)
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}
