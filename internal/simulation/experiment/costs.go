package experiment

import (
	"fmt"
	"math"
	"strings"

	"llmmemory/internal/simulation/chart"
	"llmmemory/internal/simulation/cost"
)

// worstError limits the error of a prediction, typicalError the median error.
const (
	worstError   = 0.35
	typicalError = 0.15
)

// costs compares predicted times of vLLM V1 with the published points that were not used in the fit. Each
// point is a check.
func (b *bench) costs() error {
	median, worst := chart.Series{Name: "median"}, chart.Series{Name: "worst"}
	var groups []string
	points := 0
	for _, gpu := range cost.MeasuredGPUs() {
		f, err := cost.OpenVLLM(gpu)
		if err != nil {
			return err
		}
		heldOut := cost.HeldOut(gpu)
		for _, p := range heldOut {
			b.published(p)
		}
		points += f.HeldOut.Points
		groups = append(groups, "0.10-0.20 "+strings.ReplaceAll(gpu, "-", " "))
		median.Values = append(median.Values, one(100*f.HeldOut.Median))
		worst.Values = append(worst.Values, one(100*f.HeldOut.Worst))
		b.check(chart.Predicted, fmt.Sprintf("%s on %s, median error of what was held out", f.Name, f.GPU), "0 %",
			fmt.Sprintf("%.1f %% of %d points", 100*f.HeldOut.Median, len(heldOut)), "", "at most 15 %",
			f.HeldOut.Median <= typicalError)
		b.compareWith("without error")
	}
	b.add(chart.Figure{
		Name: "cost-" + cost.VLLM, Title: "Predicted against published: " + cost.VLLM, Kind: chart.Predicted,
		Reference: "published",
		Panels: []chart.Panel{bars("", "release and GPU", chart.YAxis{Title: "error of points that were held out (%)"}, groups,
			median, worst)},
		Seeds: fmt.Sprintf("%d published points", points),
		Note: "Constants are fitted to one half of the points; these are the errors of the other half. The table below " +
			"has each of them.",
	})
	return nil
}

func (b *bench) published(p cost.Published) {
	item := fmt.Sprintf("%s %s, %s, %s", cost.VLLM, p.Version, p.GPU, p)
	e := p.Error()
	show := func(seconds float64) string {
		if p.Metric == "first_token_ms" || p.Metric == "token_ms" || p.Metric == "closed_request_ms" {
			return fmt.Sprintf("%.4g ms", 1e3*seconds)
		}
		return fmt.Sprintf("%.4g tokens/s", p.Value*p.Seconds()/seconds)
	}
	b.check(chart.Predicted, item, show(p.Seconds()), show(p.Predicted), fmt.Sprintf("%+.0f %% of the time", 100*e),
		"within 35 %", math.Abs(e) <= worstError)
	b.compareWith("published")
}
