// Command margins computes the margins of predictions from measurements of vLLM V1 (cost/published/others.json). The
// constants for vLLM V1 were not fitted to these measurements, except to four of them. The command simulates the
// measured loads and divides published by simulated times. The ratios of half of the loads give the margins, which it
// writes to cost/published/margins.json. For times to the first token, it takes differences instead of ratios. Then it
// simulates the other half of the loads with both ends of the margins, and prints how many of the published times are
// between the two results. Run it in internal/simulation/scenario:
//
//	go run ./testdata/margins -o ../cost/published/margins.json ../cost/published/others.json
package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	"llmmemory/internal/simulation/cost"
	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
)

// A point is a server, its load, and the published times; a time of 0 was not published.
type point struct {
	Publisher string `json:"publisher"`
	GPU       string `json:"gpu"`
	Excluded  string `json:"excluded"` // why its ratios do not count for the GPU

	Model      string  `json:"model"`
	Weights    string  `json:"weights"` // their type; absent: the model's
	Workers    int     `json:"workers"`
	Requests   int     `json:"requests"`
	Clients    int     `json:"clients"` // 0: all at once, or at Rate
	Rate       float64 `json:"rate"`
	Prompt     int     `json:"prompt"`
	Output     int     `json:"output"`
	RangeRatio float64 `json:"range_ratio"` // assumed where only means are published

	Seconds   float64 `json:"seconds"` // of all requests
	PerSecond float64 `json:"requests_per_s"`
	FirstMean float64 `json:"ttft_mean_ms"`
	FirstP50  float64 `json:"ttft_p50_ms"`
	TPOT      float64 `json:"tpot_mean_ms"`
}

func main() {
	log.SetFlags(0)
	out := flag.String("o", "", "file for the margins")
	flag.Parse()
	used, heldOut, err := read(flag.Arg(0))
	if err != nil {
		log.Fatal(err)
	}
	m, err := marginsOf(used)
	if err != nil {
		log.Fatal(err)
	}
	text, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(*out, append(text, '\n'), 0o644); err != nil {
		log.Fatal(err)
	}
	if err := report(m, heldOut); err != nil {
		log.Fatal(err)
	}
}

// read returns the points of a file in two halves. It sorts the points of each publisher and GPU by the SHA-256 of
// their loads, and puts every other point into the first half.
func read(file string) (used, heldOut []point, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	var sources []struct {
		point
		Points []json.RawMessage `json:"points"`
	}
	if err := json.Unmarshal(text, &sources); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	servers := map[string][]point{}
	for _, s := range sources {
		for _, text := range s.Points {
			p := s.point
			if err := json.Unmarshal(text, &p); err != nil {
				return nil, nil, fmt.Errorf("%s: %w", file, err)
			}
			p.Workers = max(1, p.Workers)
			servers[p.Publisher+p.GPU] = append(servers[p.Publisher+p.GPU], p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		all := servers[name]
		key := func(p point) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(p.load()))) }
		slices.SortFunc(all, func(a, b point) int { return cmp.Compare(key(a), key(b)) })
		for i, p := range all {
			if i%2 == 0 {
				used = append(used, p)
			} else {
				heldOut = append(heldOut, p)
			}
		}
	}
	return used, heldOut, nil
}

func (p point) load() string {
	load := fmt.Sprintf("%d at once", p.Requests)
	if p.Clients > 0 {
		load = fmt.Sprintf("%d clients", p.Clients)
	} else if p.Rate > 0 {
		load = fmt.Sprintf("%g/s", p.Rate)
	}
	return fmt.Sprintf("%s on %d x %s, %s of %d + %d", strings.TrimSpace(p.Model+" "+p.Weights), p.Workers, p.GPU, load,
		p.Prompt, p.Output)
}

// A quantity is one published time of a point, in s.
type quantity struct {
	name      string // all, token or first
	published float64
	simulated func(r *sim.Result) float64
}

func (p point) quantities(requests int) (all []quantity) {
	whole := func(r *sim.Result) float64 { return r.Seconds }
	for _, q := range []quantity{
		{"all", p.Seconds, whole},
		{"token", p.TPOT / 1000, func(r *sim.Result) float64 { return r.TPOT.Mean }},
		{"first", p.FirstMean / 1000, func(r *sim.Result) float64 { return r.TTFT.Mean }},
		{"first", p.FirstP50 / 1000, func(r *sim.Result) float64 { return r.TTFT.P50 }},
	} {
		if q.published > 0 {
			all = append(all, q)
		}
	}
	if p.PerSecond > 0 {
		all = append(all, quantity{"all", float64(requests) / p.PerSecond, whole})
	}
	return all
}

// simulate simulates a point with vLLM's defaults, but without prefix caching. It multiplies the time of every
// iteration by factor. firstToken is the time, in ms, that the server spends outside iterations until the first token
// reaches the client.
func (p point) simulate(factor, firstToken float64) (*sim.Result, []quantity, error) {
	n := cmp.Or(p.Requests, max(20, 8*p.Clients))
	plan, err := scenario.Open(scenario.Scenario{Machine: scenario.Machine{Model: p.Model, GPU: p.GPU,
		Workers: p.Workers, Engine: cost.VLLM, Weights: p.Weights},
		Load: scenario.Load{InputLen: p.Prompt, OutputLen: p.Output, RangeRatio: p.RangeRatio, Requests: n,
			Rate: p.Rate, AtOnce: p.Rate == 0, Seed: 1},
		Clients: scenario.Clients{MaxConcurrency: p.Clients}, Server: sim.Server{NoCaching: true}})
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", p.load(), err)
	}
	r, err := plan.Within(factor, firstToken/1000).Run(context.Background(), nil, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", p.load(), err)
	}
	return r, p.quantities(n), nil
}

// light reports whether the load is so light that requests hardly wait for others before their first token.
func (p point) light() bool {
	return p.Workers == 1 && (0 < p.Clients && p.Clients <= 8 || 0 < p.Rate && p.Rate <= 8)
}

// minRatios is the minimum number of ratios from which the margin of a GPU is computed. A GPU with fewer has the margin
// of all GPUs.
const minRatios = 4

// ratios has published times divided by simulated times.
type ratios struct {
	all        []float64
	publishers []string
}

func (r *ratios) margin() cost.Margin {
	return cost.Margin{Points: len(r.all), Publishers: r.publishers,
		Least: math.Floor(100*min(1, slices.Min(r.all))) / 100, Most: math.Ceil(100*max(1, slices.Max(r.all))) / 100}
}

func marginsOf(points []point) (cost.Margins, error) {
	servers, firsts := map[string]*ratios{}, map[string][]float64{}
	for _, p := range points {
		r, quantities, err := p.simulate(1, 0)
		if err != nil {
			return cost.Margins{}, err
		}
		for _, q := range quantities {
			if q.name == "first" && p.light() {
				firsts[p.Publisher] = append(firsts[p.Publisher], 1000*(q.published-q.simulated(r)))
			}
			if q.name == "first" || p.Excluded != "" || p.Weights != "" {
				continue
			}
			for _, gpu := range []string{p.GPU, ""} {
				s := cmp.Or(servers[gpu], &ratios{})
				s.all = append(s.all, q.published/q.simulated(r))
				if !slices.Contains(s.publishers, p.Publisher) {
					s.publishers = append(s.publishers, p.Publisher)
				}
				servers[gpu] = s
			}
		}
	}
	m := cost.Margins{GPUs: map[string]cost.Margin{}, First: firstToken(firsts), Elsewhere: servers[""].margin()}
	for gpu, r := range servers {
		if gpu != "" && len(r.all) >= minRatios {
			m.GPUs[gpu] = r.margin()
		}
	}
	return m, nil
}

// firstToken returns the range of the publishers' medians, and their median.
func firstToken(firsts map[string][]float64) (f cost.FirstToken) {
	var medians []float64
	for _, name := range slices.Sorted(maps.Keys(firsts)) {
		slices.Sort(firsts[name])
		medians = append(medians, firsts[name][(len(firsts[name])-1)/2])
		f.Publishers = append(f.Publishers, name)
		f.Points += len(firsts[name])
	}
	slices.Sort(medians)
	f.Least, f.Most = max(0, math.Round(medians[0])), math.Round(medians[len(medians)-1])
	f.Likely = math.Round((medians[(len(medians)-1)/2] + medians[len(medians)/2]) / 2)
	return f
}

func report(m cost.Margins, points []point) error {
	inRange, all := 0, 0
	for _, p := range points {
		if p.Excluded != "" {
			continue
		}
		margin, ok := m.GPUs[p.GPU]
		if !ok {
			margin = m.Elsewhere
		}
		fast, quantities, err := p.simulate(margin.Least, m.First.Least)
		if err != nil {
			return err
		}
		slow, _, err := p.simulate(margin.Most, m.First.Most)
		if err != nil {
			return err
		}
		for _, q := range quantities {
			low, high := q.simulated(fast), q.simulated(slow)
			fmt.Printf("%s, %s: %s %.4g s, simulated %.4g to %.4g s\n", p.Publisher, p.load(), q.name,
				q.published, low, high)
			all++
			if low <= q.published && q.published <= high {
				inRange++
			}
		}
	}
	fmt.Printf("%d of %d quantities are within\n", inRange, all)
	return nil
}
