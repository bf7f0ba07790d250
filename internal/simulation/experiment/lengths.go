package experiment

import (
	"math/rand/v2"

	"llmmemory/internal/simulation/chart"
	"llmmemory/internal/simulation/workload"
)

// lengths makes Fig. 11: the lengths of prompts and answers in the two data sets.
func (b *bench) lengths() error {
	const draws = 50000
	var panels []chart.Panel
	for _, w := range []struct {
		name     string
		bin, end int // tokens
	}{{"sharegpt", 50, 1200}, {"alpaca", 10, 240}} {
		drawn, _, err := workload.Named(w.name)
		if err != nil {
			return err
		}
		rng := rand.New(rand.NewPCG(1, 11))
		bins := w.end / w.bin
		prompts, outputs := make([]float64, bins), make([]float64, bins)
		var prompt, output float64
		for range draws {
			p, o := drawn.Draw(rng)
			prompt, output = prompt+float64(p), output+float64(o)
			prompts[min(p/w.bin, bins-1)]++
			outputs[min(o/w.bin, bins-1)]++
		}
		paper := targets.Lengths[w.name]
		b.checkWithinPercent(chart.Calibrated, "Fig. 11, "+title(w.name)+", mean prompt, tokens", one(prompt/draws),
			paper.Prompt, 2)
		b.checkWithinPercent(chart.Calibrated, "Fig. 11, "+title(w.name)+", mean answer, tokens", one(output/draws),
			paper.Output, 2)
		line := func(name string, counts []float64) chart.Line {
			l := chart.Line{Name: name}
			for i, n := range counts[:bins-1] { // the last one has all longer ones
				l.Points = append(l.Points, chart.Point{X: (float64(i) + 0.5) * float64(w.bin), Value: one(100 * n / draws)})
			}
			return l
		}
		panels = append(panels, chart.Panel{
			Title: title(w.name), X: "tokens", Y: chart.YAxis{Title: "requests (%)"},
			Data: chart.Lines{line("prompt", prompts), line("answer", outputs)},
		})
	}
	b.add(chart.Figure{
		Name: "fig11-lengths", Title: "Lengths of prompts and answers (Fig. 11)", Kind: chart.Calibrated, Panels: panels,
		Seeds: "50,000 draws",
		Note: "Shares of requests in classes of 50 tokens for ShareGPT and of 10 for Alpaca. ShareGPT's are drawn from " +
			"quantiles of the artifact's lengths; of Alpaca's only the means and the maxima of batches are at hand, and the " +
			"shape is inferred.",
	})
	return nil
}
