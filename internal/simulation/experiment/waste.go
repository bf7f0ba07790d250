package experiment

import (
	"llmmemory/internal/simulation/chart"
	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
)

// waste makes Fig. 2: what the memory of each system contains under a load that fills it.
func (b *bench) waste() error {
	t := targets.Fig2
	parts := []struct {
		name  string
		share func(*sim.Result) float64
	}{
		{"token states", func(r *sim.Result) float64 { return 100 * r.Window.Tokens }},
		{"reservation", func(r *sim.Result) float64 { return 100 * r.Window.Reservation }},
		{"internal fragmentation", func(r *sim.Result) float64 { return 100 * r.Window.Internal }},
		{"external fragmentation and others", func(r *sim.Result) float64 { return 100 * r.Window.External }},
	}
	seeds := b.averageSeeds()
	var stacks chart.Stacks
	for _, p := range parts {
		stacks.Parts = append(stacks.Parts, p.name)
	}
	for _, system := range []string{"orca-max", "orca-pow2", "orca-oracle", "sosp", "vllm-v0", "vllm-v1"} {
		results, err := b.seeds(scenario.Scenario{
			Load: scenario.Load{Workload: "sharegpt", Rate: t.Rate, Duration: t.Duration}, Server: server(system),
			Window: scenario.Window{From: t.Window[0], Until: t.Window[1], Stop: true},
		}, seeds)
		if err != nil {
			return err
		}
		column := chart.Column{Name: label(system)}
		paper := map[string][]float64{"orca-max": t.Max[:], "orca-pow2": t.Pow2[:], "orca-oracle": t.Oracle[:]}[system]
		for i, p := range parts {
			v := average(results, p.share)
			if paper != nil {
				v.Paper = chart.Printed(paper[i])
				b.checkWithinPoints(chart.Predicted, "Fig. 2, "+column.Name+", "+p.name, v, paper[i], 2.5)
			}
			column.Parts = append(column.Parts, v)
		}
		if system == "sosp" {
			printed := *t.VLLM[0]
			column.Parts[0].Paper = chart.Printed(printed)
			b.checkWithinPoints(chart.Predicted, "Fig. 2, "+column.Name+", token states", column.Parts[0], printed, 2.5)
			b.checkWithinRange(chart.Predicted, "Fig. 2, "+column.Name+", saturated", "96.30 %",
				column.Parts[0], 95.5, 97)
		}
		stacks.Columns = append(stacks.Columns, column)
	}
	b.add(chart.Figure{
		Name: "fig02-memory-waste", Title: "Memory waste by system (Fig. 2)", Kind: chart.Predicted,
		Panels: []chart.Panel{{
			X: "system", Y: chart.YAxis{Title: "part of the KV cache (%)", Max: 100}, Data: stacks,
		}},
		Seeds: seedsLabel(seeds, t.Duration),
		Note: "OPT-13B on an A100 with 40 GB, ShareGPT's length quantiles at 4 requests/s, averages over the iterations " +
			"from 300 to 900 s. The paper prints only the token states of its vLLM; it has no numbers for V0 and V1.",
	})
	return nil
}
