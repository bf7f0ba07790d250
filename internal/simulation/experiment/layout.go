package experiment

import (
	"fmt"

	"llmmemory/internal/simulation/chart"
	"llmmemory/internal/simulation/cost"
	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
)

// layout makes Fig. 1. Its panels show three things: what the memory of a GPU contains, how much memory is used at each
// number of concurrent requests, and which throughput is reached at each of these numbers.
func (b *bench) layout() error {
	setup, err := cost.Open(scenario.PaperSetup)
	if err != nil {
		return err
	}
	blocks, _, err := setup.Pool(16)
	if err != nil {
		return err
	}
	const gb = 1e9
	const all = 40 * gb // the paper's 65 % are relative to the GPU's nominal 40 GB; the driver reports 42.3
	parameters := float64(setup.LLM.Parameters) * setup.LLM.ParameterBytes
	cache := float64(blocks) * 16 * float64(setup.LLM.KVBytesPerToken())
	share := one(100 * parameters / all)
	share.Paper = chart.Printed(65)
	b.checkWithinPoints(chart.Predicted, "Fig. 1, parameters of OPT-13B on an A100 with 40 GB", share, 65, 1)
	b.checkWithinRange(chart.Predicted, "Fig. 1, KV cache, % of the memory", "over 30 %", one(100*cache/all), 30, 33)

	memory, speed, err := b.byBatch(parameters / gb)
	if err != nil {
		return err
	}
	last := func(l chart.Line) chart.Point { return l.Points[len(l.Points)-1] }
	orca, vllm := last(speed[0]), last(speed[1])
	b.checkOrder("Fig. 1, most requests at once", "vLLM >> existing systems", fmt.Sprintf("%.0f against %.0f", vllm.X, orca.X),
		vllm.X > 2*orca.X)
	b.checkOrder("Fig. 1, throughput with them", "vLLM >> existing systems", fmt.Sprintf("%.0f against %.0f tokens/s",
		vllm.Mean, orca.Mean), vllm.Mean > 1.5*orca.Mean)
	b.add(chart.Figure{
		Name: "fig01-memory-layout", Title: "What memory holds, and how it grows (Fig. 1)", Kind: chart.OrderOnly,
		Panels: []chart.Panel{
			{
				Title: "A100, 40 GB", X: "OPT-13B",
				Y: chart.YAxis{Title: "part of the memory (%)", Max: 100},
				Data: chart.Stacks{Parts: []string{"parameters", "KV cache", "other"}, Columns: []chart.Column{{
					Name: "one GPU", Parts: []chart.Value{share, one(100 * cache / all),
						one(100 * (1 - (parameters+cache)/all))},
				}}},
			},
			{Title: "memory", X: "requests at once", Y: chart.YAxis{Title: "memory used (GB)"},
				Data: chart.Lines(memory)},
			{Title: "throughput", X: "requests at once", Y: chart.YAxis{Title: "tokens/s"},
				Data: chart.Lines(speed)},
		},
		Seeds: "seed 1, 300 requests",
		Note: "Left: computed from the model and the GPU, as parts of the 40 GB in its name, as in the paper. Right: a " +
			"closed loop of ShareGPT's lengths; each line ends where more requests at once find no memory. " +
			"The paper's existing systems are Orca reserving the longest sequence here.",
	})
	return nil
}

// byBatch runs Orca (Max) and vLLM with an increasing number of concurrent requests. It stops when a system runs, on
// average, less than 80 % of these requests at once. It returns the used memory in GB and the throughput in
// tokens/s, as one line for each system. parameters is the memory of the weights in GB.
func (b *bench) byBatch(parameters float64) (memory, speed []chart.Line, err error) {
	const requests, bytes = 300, 983 * 13107200 / 1e9
	for _, system := range []string{"orca-max", "sosp"} {
		m, s := chart.Line{Name: label(system)}, chart.Line{Name: label(system)}
		for _, limit := range []int{1, 2, 4, 6, 8, 12, 16, 24, 32, 40} {
			results, err := b.run([]scenario.Scenario{{
				Load:    scenario.Load{Workload: "sharegpt", AtOnce: true, Requests: requests, Seed: 1},
				Clients: scenario.Clients{MaxConcurrency: limit}, Server: sim.Server{System: system},
			}})
			if err != nil {
				return nil, nil, err
			}
			w := results[0].Window
			if w.Requests < 0.8*float64(limit) {
				break
			}
			point := func(v float64) chart.Point { return chart.Point{X: float64(limit), Value: one(v)} }
			m.Points = append(m.Points, point(parameters+bytes*(1-w.External)))
			s.Points = append(s.Points, point(float64(results[0].Generated)/results[0].Seconds))
		}
		memory, speed = append(memory, m), append(speed, s)
	}
	return memory, speed, nil
}
