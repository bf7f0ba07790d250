package plans

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"

	"llmmemory/internal/jobs"
	"llmmemory/internal/simulation/chart"
)

// Save writes the figures, a page with them, and plan.json to a folder, which it creates if necessary. Each
// file is replaced atomically; plan.json is last.
func (r *Report) Save(dir string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return fmt.Errorf("plan.json: %w", err)
	}
	page := chart.Page{Title: "Plan: " + r.Setup, Answer: r.Verdict + ".", Facts: r.pageFacts(), Figures: r.figures()}
	if err := page.Write(dir); err != nil {
		return err
	}
	if err := jobs.Replace(filepath.Join(dir, "plan.json"), append(text, '\n')); err != nil {
		return fmt.Errorf("write the plan: %w", err)
	}
	return nil
}

func (r *Report) pageFacts() []chart.Fact {
	all := []chart.Fact{{Name: "Requests", Text: r.Load.About}, {Name: "Iterations", Text: r.Cost},
		{Name: "Memory", Text: r.Memory.String()}}
	if r.Capacity.Rate == 0 {
		return all
	}
	if r.hasRun() {
		all = append(all, chart.Fact{Name: "Latency", Text: r.text("latency")}, chart.Fact{Name: "Lasts", Text: r.text("lasts")})
	}
	all = append(all, chart.Fact{Name: "Take", Text: fmt.Sprintf("block size %d and %s", r.Take.BlockSize, r.Take.System)})
	if r.Target != nil {
		for _, s := range r.Target.Servers {
			all = append(all, chart.Fact{Name: fmt.Sprintf("For %s/s", rate(r.Target.Rate)),
				Text: s.String()})
		}
	}
	return all
}

// figures returns the report's figures, or none if the capacity is 0.
func (r *Report) figures() []chart.Figure {
	if r.Capacity.Rate == 0 {
		return nil
	}
	const assumed = "Times are those of the cost model, not of a run on the GPU."
	sizes := r.bars("plan-block-sizes", "Capacity by block size", "tokens in a block, the same bytes of memory",
		r.BlockSizes, "")
	sizes.Note = assumed + " Small blocks cost an attention kernel time, which is not modelled."
	systems := r.bars("plan-systems", "Capacity by system", "system", r.Systems, "")
	systems.Note = assumed
	limits := r.bars("plan-limits", "Capacity when one thing is different", "change", r.Limits, "as it is")
	limits.Note = assumed + " What raises the capacity most is its limit; two of the bars, everything and the " +
		"objectives, are for comparison."
	latency := r.latency()
	latency.Note = assumed
	return []chart.Figure{latency, limits, sizes, systems}
}

func (r *Report) runs() string {
	if r.Load.Requests == 0 {
		return r.Load.seeds()
	}
	return fmt.Sprintf("%s, %d requests", r.Load.seeds(), r.Load.Requests)
}

// seriesName returns the name of a series of values over the seeds. average says what a value is. For example,
// seriesName("median") returns "median of the seeds". If there is only one seed, seriesName returns its name, such as
// "seed 7", or "one trace".
func (r *Report) seriesName(average string) string {
	if len(r.Load.Seeds) == 1 {
		return r.Load.seeds()
	}
	return average + " of the seeds"
}

func (r *Report) latency() chart.Figure {
	f := chart.Figure{Name: "plan-latency", Title: "Latency against request rate: " + r.Setup, Kind: chart.Simulated,
		Seeds: r.runs()}
	for _, c := range r.columns()[:min(6, len(r.columns()))] {
		var line chart.Line
		line.Name = r.seriesName("median")
		for _, s := range r.Capacity.Curve {
			// Near the highest rate, the values of single seeds may differ much from the others; the median ignores
			// them.
			if v := median(s, c.value); !math.IsInf(v, 0) {
				line.Points = append(line.Points, chart.Point{X: s.Rate, Value: chart.Value{Mean: v, Seeds: len(s.Points)}})
			}
		}
		if len(line.Points) == 0 {
			continue
		}
		first, last := line.Points[0].X, line.Points[len(line.Points)-1].X
		lines := []chart.Line{line}
		top := 0.0
		if c.limit > 0 {
			top = 2 * c.limit
			limit := chart.Value{Mean: c.limit, Seeds: 1}
			lines = append(lines, chart.Line{Name: "objective", Points: []chart.Point{{X: first, Value: limit},
				{X: last, Value: limit}}})
		}
		unit := "s"
		if c.name == "normalized mean" {
			unit = "s/token"
		}
		f.Panels = append(f.Panels, chart.Panel{
			Title: c.name, X: "request rate (requests/s)",
			Y: chart.YAxis{Title: fmt.Sprintf("%s (%s)", c.name, unit), Max: top}, Data: chart.Lines(lines),
		})
	}
	return f
}

// bars returns a bar chart with one bar for each change without Trouble. The bar shows the capacity with this change.
// If base is not "", the first bar is named base and shows the capacity without changes.
func (r *Report) bars(name, title, x string, changes []Change, base string) chart.Figure {
	var groups []string
	var values []chart.Value
	add := func(name string, rates []float64) {
		groups, values = append(groups, name), append(values, chart.Average(rates))
	}
	if base != "" {
		add(base, r.asIs)
	}
	for _, c := range changes {
		if c.Trouble == "" {
			add(c.Name, c.rates)
		}
	}
	return chart.Figure{
		Name: name, Title: title + ": " + r.Setup, Kind: chart.Simulated, Seeds: r.runs(),
		Panels: []chart.Panel{{
			X: x, Y: chart.YAxis{Title: "requests/s under " + r.SLO},
			Data: chart.Bars{Groups: groups, Series: []chart.Series{{Name: r.seriesName("mean"), Values: values}}},
		}},
	}
}
