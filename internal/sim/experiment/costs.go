package experiment

import (
	"fmt"
	"math"
	"strings"

	"llmmemory/internal/chart"
	"llmmemory/internal/sim/cost"
)

// worstError is how far off a prediction may be, typicalError how far the median.
const (
	worstError   = 0.35
	typicalError = 0.15
)

// costs compares the times of engines with what is published of them: the half of
// the points that nothing was fitted to.
func (b *bench) costs() error {
	for _, engine := range cost.Engines() {
		if err := b.costsOf(engine); err != nil {
			return err
		}
	}
	return nil
}

// costsOf returns the figure of an engine, and a row for each point that was held out.
func (b *bench) costsOf(engine string) error {
	median, worst := chart.Series{Name: "median"}, chart.Series{Name: "worst"}
	var groups []string
	points := 0
	releases, err := cost.Releases(engine, "")
	if err != nil {
		return err
	}
	for _, release := range releases {
		for _, gpu := range cost.GPUs() {
			heldOut := cost.HeldOut(engine, release, gpu)
			if heldOut == nil {
				continue
			}
			f, err := cost.OpenEngine(engine+"-"+release, gpu)
			if err != nil {
				return err
			}
			if !f.HeldOut.Enough() {
				continue
			}
			for _, p := range heldOut {
				b.published(p)
			}
			points += f.HeldOut.Points
			groups = append(groups, release+" "+strings.ReplaceAll(gpu, "-", " "))
			median.Values = append(median.Values, one(100*f.HeldOut.Median))
			worst.Values = append(worst.Values, one(100*f.HeldOut.Worst))
			b.costMedian(f, len(heldOut))
		}
	}
	b.add(chart.Figure{
		Name: "cost-" + engine, Title: "Predicted against published: " + engine, Kind: chart.Predicted,
		Reference: "published",
		Panels: []chart.Panel{{
			X: chart.XAxis{Title: "release and GPU"}, Y: chart.YAxis{Title: "error of points that were held out (%)"},
			Data: chart.Bars{Groups: groups, Series: []chart.Series{median, worst}},
		}},
		Seeds: fmt.Sprintf("%d published points", points),
		Note: "Constants are fitted to one half of the points; these are the errors of the other half. The table below " +
			"has each of them, and why some miss.",
	})
	return nil
}

// costMedian is a row for a release on a GPU.
func (b *bench) costMedian(f cost.Fitted, points int) {
	b.check(chart.Predicted, fmt.Sprintf("%s on %s, median error of what was held out", f.Name, f.GPU), "0 %",
		fmt.Sprintf("%.1f %% of %d points", 100*f.HeldOut.Median, points), "", "at most 15 %",
		f.HeldOut.Median <= typicalError)
	b.report.Checks[len(b.report.Checks)-1].Reference = "without error"
}

// published is one point of the table.
func (b *bench) published(p cost.Published) {
	item := fmt.Sprintf("%s %s, %s, %s", p.Engine, p.Version, p.GPU, p)
	off := p.Error()
	show := func(seconds float64) string {
		switch p.Metric {
		case "first_token_ms", "token_ms", "closed_request_ms":
			return fmt.Sprintf("%.4g ms", 1e3*seconds)
		case "batch_s":
			return fmt.Sprintf("%.4g s", seconds)
		}
		return fmt.Sprintf("%.4g tokens/s", p.Value*p.Seconds()/seconds)
	}
	kind, tolerance, ok := chart.Predicted, "within 35 %", math.Abs(off) <= worstError
	if cause, most := missCause(p); !ok && cause != "" {
		kind, tolerance, ok = chart.KnownMiss, cause, math.Abs(off) <= most
	}
	b.check(kind, item, show(p.Seconds()), show(p.Predicted), fmt.Sprintf("%+.0f %% of the time", 100*off), tolerance, ok)
	b.report.Checks[len(b.report.Checks)-1].Reference = "published"
}

// missCause returns why a prediction of a point is farther off than others, as far as it is
// known, and how far it then may be; "": it is not known.
func missCause(p cost.Published) (cause string, most float64) {
	short := p.Metric == "first_token_ms" || p.Metric == "token_ms"
	switch {
	case p.Engine == "tensorrt-llm" && p.Model == "falcon-180b" && p.Metric == "first_token_ms":
		return "Falcon 180B was built with GEMM plugins, the others without", 0.46
	case p.Engine == "tensorrt-llm" && p.GPU == "h100-80gb" && p.DType == "fp8" && p.Model == "llama-2-70b" &&
		p.Prompt >= 2048 && p.Output >= 2048:
		return "half_tokens of this GPU, which large batches of small models in fp8 ask for, is too much for 64 sequences " +
			"of Llama 2 70B", 0.54
	case p.GPU == "rtx-6000-ada" && p.Model == "llama-3-8b" && short && p.Prompt > 20000:
		return "28,634 tokens of a sequence that is alone: this GPU computes the prompt no faster than the A6000 does, " +
			"and no point of it with such a sequence is fitted", 0.73
	}
	return "", 0
}
