package experiment

import (
	"llmmemory/internal/simulation/chart"
	"llmmemory/internal/simulation/scenario"
)

// sharedPrefix makes Fig. 16: translation, where all prompts begin with the same examples.
func (b *bench) sharedPrefix() error {
	seeds, seconds := b.curveSeeds(), 900.0
	if b.Quick {
		seeds, seconds = seedsFrom1(1), 300
	}
	var panels []chart.Panel
	var groups []string
	var values []chart.Value
	for _, w := range []struct {
		workload, title, short string
		paper                  float64
	}{
		{"wmt16-1shot", "1 example, 80 tokens", "1 example", targets.Ratio.OneShot},
		{"wmt16-5shot", "5 examples, 341 tokens", "5 examples", targets.Ratio.FiveShot},
	} {
		all, err := b.curves(scenario.Scenario{Load: scenario.Load{Workload: w.workload, Duration: seconds},
			Machine: scenario.Machine{Setup: "paper-llama-13b"}},
			[]string{"orca-oracle", "sosp", "vllm-v1"}, seeds)
		if err != nil {
			return err
		}
		panels = append(panels, latencyPanel(w.title, all))
		r := ratio(&all[1], &all[0], chart.Printed(w.paper))
		if w.workload == "wmt16-1shot" {
			for i, at := range []int{1, 0} {
				b.checkWithinPercent(chart.Calibrated,
					"Fig. 16, "+w.title+", requests/s of "+label(all[at].system)+", as drawn",
					chart.Average(all[at].rates), targets.Ratio.OneShotRates[i], 20)
			}
		}
		groups, values = append(groups, "Oracle, "+w.short), append(values, r)
		b.checkWithinPercent(chart.Calibrated, "Fig. 16, "+w.title+", rate of vLLM/Orca (Oracle)", r, w.paper, 20)
	}
	panels = append(panels, ratios(groups, values))
	b.add(chart.Figure{
		Name: "fig16-shared-prefix", Title: "Shared prefix (Fig. 16, LLaMA-13B)", Kind: chart.Calibrated, Panels: panels,
		Seeds: seedsLabel(seeds, seconds),
		Note: "The lengths of WMT16's sentences are an assumption, and the times of an iteration are OPT-13B's line. The " +
			"paper's factors over Oracle are 1.67 and 3.58. The paper's vLLM keeps the whole blocks of the prefix and computes the rest; V1 finds them in its prefix cache.",
	})
	return nil
}
