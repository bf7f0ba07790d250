package experiment

import (
	"llmmemory/internal/simulation/chart"
	"llmmemory/internal/simulation/scenario"
)

func (b *bench) batched() error {
	seeds, seconds, start := b.averageSeeds(), 3600.0, 600.0
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
		for _, s := range []struct {
			system  string
			kind    chart.Kind
			percent float64
		}{
			{"orca-max", chart.Predicted, 0.1}, // exact: as many chunks of 2,048 tokens fit
			{"orca-pow2", chart.Predicted, 6},
			{"orca-oracle", chart.Predicted, 6},
			{"sosp", chart.Calibrated, 12},
		} {
			paper := w.paper[s.system]
			v, err := b.averageOverSeeds(scenario.Scenario{
				Load: scenario.Load{Workload: w.workload, Rate: w.rate, Duration: seconds}, Server: server(s.system),
				Window: scenario.Window{From: start, Until: seconds, Stop: true},
			}, seeds, requests, chart.Printed(paper))
			if err != nil {
				return err
			}
			b.checkWithinPercent(s.kind, "Fig. 13, "+w.title+", "+label(s.system), v, paper, s.percent)
			systems = append(systems, label(s.system))
			ours.Values = append(ours.Values, v)
		}
		panels = append(panels, bars(w.title, "system", chart.YAxis{Title: "batched requests"}, systems, ours))
	}
	b.add(chart.Figure{
		Name: "fig13-batched-requests", Title: "Batched requests (Fig. 13)", Kind: chart.Calibrated, Panels: panels,
		Seeds: seedsLabel(seeds, seconds),
		Note: "Averages over the iterations after 600 s. Orca's are predicted. vLLM's are calibrated: the four constants of " +
			"the time of an iteration were fitted to these two numbers with the real lengths, and not again for the " +
			"quantiles used here. Alpaca's lengths are inferred.",
	})
	return nil
}
