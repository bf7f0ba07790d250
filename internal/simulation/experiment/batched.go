package experiment

import (
	"llmmemory/internal/simulation/chart"
	"llmmemory/internal/simulation/scenario"
)

// batched is Fig. 13: how many requests are in a batch.
func (b *bench) batched() error {
	seeds, seconds, from := b.averageSeeds(), 3600.0, 600.0
	if b.Quick {
		seconds = 2400
	}
	var panels []chart.Panel
	for _, w := range []struct {
		workload, title string
		rate            float64
		paper           map[string]float64
	}{
		{"sharegpt", "ShareGPT, 2 requests/s", 2, targets.Fig13.ShareGPT},
		{"alpaca", "Alpaca, 30 requests/s", 30, targets.Fig13.Alpaca},
	} {
		ours := chart.Series{Name: "batched requests"}
		var systems []string
		for _, system := range []string{"orca-max", "orca-pow2", "orca-oracle", "sosp"} {
			paper := w.paper[system]
			v, err := b.averageOverSeeds(scenario.Scenario{
				Load: scenario.Load{Workload: w.workload, Rate: w.rate, Duration: seconds}, Server: server(system),
				Window: scenario.Window{From: from, Until: seconds, Stop: true},
			}, seeds, requests, chart.Printed(paper))
			if err != nil {
				return err
			}
			kind, percent := chart.Predicted, 6.0
			switch system {
			case "sosp":
				kind, percent = chart.Calibrated, 12
			case "orca-max":
				percent = 0.1 // exact: as many chunks of 2,048 tokens fit
			}
			b.checkWithinPercent(kind, "Fig. 13, "+w.title+", "+label(system), v, paper, percent)
			systems = append(systems, label(system))
			ours.Values = append(ours.Values, v)
		}
		panels = append(panels, chart.Panel{
			Title: w.title, X: chart.XAxis{Title: "system"}, Y: chart.YAxis{Title: "batched requests"},
			Data: chart.Bars{Groups: systems, Series: []chart.Series{ours}},
		})
	}
	b.add(chart.Figure{
		Name: "fig13-batched-requests", Title: "Batched requests (Fig. 13)", Kind: chart.Calibrated, Panels: panels,
		Seeds: seedsLabel(seeds, seconds),
		Note: "Averages over the iterations after 600 s. Orca's are predicted. vLLM's are calibrated: the four constants " +
			"of the time of an iteration " +
			"were fitted to these two numbers with the real lengths, and not again for the quantiles used here. Alpaca's " +
			"lengths are inferred.",
	})
	return nil
}
