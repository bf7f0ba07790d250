package experiment

import (
	"fmt"

	"llmmemory/internal/simulation/chart"
	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
)

var widths = []int{2, 4, 6}

func decoding(n int, beam bool) sim.Decoding {
	d := sim.Decoding{Samples: n, Beam: beam}
	if beam {
		d.Replace = sim.DefaultReplace
	}
	return d
}

const beams = "Which beams survive depends on a model's probabilities; here each is replaced by a copy of another at " +
	"7.5 % of the tokens, which is fitted to the saving of width 2 (Fig. 15b)."

// sampling makes Fig. 14: the latency on Alpaca with several answers to each prompt.
func (b *bench) sampling() error {
	seeds, seconds := b.curveSeeds(), 900.0
	if b.Quick {
		seeds, seconds = seedsFrom1(1), 300
	}
	for _, beam := range []bool{false, true} {
		var panels []chart.Panel
		var groups []string
		var values []chart.Value
		for i, n := range widths {
			all, err := b.curves(scenario.Scenario{Load: scenario.Load{Workload: "alpaca", Duration: seconds},
				Decoding: decoding(n, beam)},
				[]string{"orca-max", "orca-pow2", "orca-oracle", "sosp"}, seeds)
			if err != nil {
				return err
			}
			title := fmt.Sprintf("%d samples", n)
			if beam {
				title = fmt.Sprintf("beam width %d", n)
			}
			panels = append(panels, latencyPanel(title, all))
			r := ratio(&all[3], &all[2], nil)
			item := "Fig. 14, Alpaca, " + title + ", rate of vLLM/Orca (Oracle)"
			switch {
			case !beam:
				r.Paper = chart.Printed(targets.Ratio.Samples[i])
				b.checkKnownMiss(item, fmt.Sprintf("about %g, as drawn", targets.Ratio.Samples[i]), r, 1.2, 1.45,
					"the time for a sequence limits ours: with 0.06 ms instead of 0.30 the gains are 1.58, 1.55 and 1.49; why the "+
						"paper's rise with the number is not known, as sharing saves only 6 to 10 % of the blocks (Fig. 15)")
			case n == 6:
				r.Paper = chart.Printed(targets.Ratio.Beam6)
				b.checkKnownMiss(item, fmt.Sprint(targets.Ratio.Beam6), r, 1.2, 2,
					"at saturation the time of an iteration, which is calibrated on batches of single sequences, limits ours "+
						"before memory does")
			default:
				b.checkOrder(item, "", meanAndSD(r), r.Mean > 1.2)
			}
			groups, values = append(groups, fmt.Sprint(n)), append(values, r)
		}
		against := ratios(groups, values)
		against.X = "vLLM against Orca (Oracle), by number"
		panels = append(panels, against)
		f := chart.Figure{
			Name: "fig14a-parallel-sampling", Title: "Parallel sampling (Fig. 14, Alpaca)", Kind: chart.OrderOnly,
			Panels: panels,
			Seeds:  seedsLabel(seeds, seconds),
			Note: "Lengths are inferred. A sequence costs the same time whether its prompt is shared or not, so memory " +
				"makes the whole difference. The paper's gains are read off its drawn curves.",
		}
		if beam {
			f.Name, f.Title = "fig14b-beam-search", "Beam search (Fig. 14, Alpaca)"
			f.Note = beams + " The paper's factor at width 6 is 2.3: time of an iteration, which is calibrated on batches of " +
				"single sequences, limits ours before memory does."
		}
		b.add(f)
	}
	return nil
}

// saved runs the paper's vLLM with n samples or beams. It returns the memory saved by sharing, in percent of the
// blocks needed without sharing.
func (b *bench) saved(workload string, rate float64, n int, beam bool, paper *chart.Range) (chart.Value, error) {
	const seconds = 900
	return b.averageOverSeeds(scenario.Scenario{
		Load: scenario.Load{Workload: workload, Rate: rate, Duration: seconds}, Server: server("sosp"),
		Decoding: decoding(n, beam), Window: scenario.Window{From: 300, Until: seconds, Stop: true},
	}, b.averageSeeds(), saving, paper)
}

// saving makes Fig. 15: the memory that sharing saves.
func (b *bench) saving() error {
	parallel, sampled, err := b.savingPanel(false, []savingSeries{
		{"alpaca", "Alpaca, one hump", chart.Predicted, 3},
		{"alpaca-inputs", "Alpaca, two humps", chart.Explained, 3},
	})
	if err != nil {
		return err
	}
	beam, searched, err := b.savingPanel(true, []savingSeries{{"alpaca", "Alpaca, one hump", chart.Calibrated, 2}})
	if err != nil {
		return err
	}
	for i, n := range widths {
		p, q := sampled[i], searched[i]
		b.checkOrder(fmt.Sprintf("Fig. 15, Alpaca, %d, beam saves far more than sampling", n), "beam >> sampling",
			meanAndSD(q)+" % against "+meanAndSD(p)+" %", q.Mean > 3*p.Mean)
	}
	if err := b.savingOfShareGPT(); err != nil {
		return err
	}
	b.add(chart.Figure{
		Name: "fig15-memory-saving", Title: "Memory saved by sharing (Fig. 15, Alpaca at 20 requests/s)",
		Kind: chart.Calibrated, Panels: []chart.Panel{parallel, beam},
		Seeds: seedsLabel(b.averageSeeds(), 900),
		Note: "Sampling with one hump is predicted. It shares whole blocks of the prompt, so prompts below 16 tokens share " +
			"none, and the shape of the prompts' lengths decides: with the one hump that was inferred ours saves too much; " +
			"with two humps (40 % of Alpaca's instructions have an input) of the same mean and the same maxima of batches, " +
			"made when the miss was known, it is nearer. " + beams,
	})
	return nil
}

// A savingSeries is a series of bars in Fig. 15. The bars show the savings for one workload. points is the largest
// allowed difference between a bar and the paper's value, in percentage points.
type savingSeries struct {
	workload, title string
	kind            chart.Kind
	points          float64
}

// savingPanel returns one panel of Fig. 15, with the savings of all series by number of samples or beams. first has
// the savings of the first series.
func (b *bench) savingPanel(beam bool, all []savingSeries) (panel chart.Panel, first []chart.Value, err error) {
	title, x, printed := "parallel sampling", "samples of a prompt", targets.Fig15.Parallel
	if beam {
		title, x, printed = "beam search", "beam width", targets.Fig15.Beam
	}
	var groups []string
	for _, n := range widths {
		groups = append(groups, fmt.Sprint(n))
	}
	var series []chart.Series
	for _, w := range all {
		s := chart.Series{Name: w.title}
		rising := true
		for i, n := range widths {
			paper := printed[fmt.Sprint(n)]
			v, err := b.saved(w.workload, 20, n, beam, chart.Printed(paper))
			if err != nil {
				return panel, nil, err
			}
			rising = rising && (i == 0 || v.Mean > s.Values[i-1].Mean)
			s.Values = append(s.Values, v)
			b.checkWithinPoints(w.kind, fmt.Sprintf("Fig. 15, %s, %s, %d", title, w.title, n), v, paper, w.points)
		}
		if w.kind != chart.Explained {
			b.checkOrder("Fig. 15, "+title+", "+w.title+", rises with the number", "rises", fmt.Sprint(rising), rising)
		}
		series = append(series, s)
	}
	return bars(title, x, chart.YAxis{Title: "memory saved by sharing (%)"}, groups, series...), series[0].Values, nil
}

// savingOfShareGPT compares the savings on ShareGPT with the ranges in §6.3 of the paper, which does not state the
// rate. It assumes that the low end of a range is the saving with two samples or beams, and the high end the saving
// with six.
func (b *bench) savingOfShareGPT() error {
	const rate = 1
	for _, x := range []struct {
		n      int
		beam   bool
		paper  float64
		points float64 // 0: a known miss
	}{
		{2, false, targets.ShareGPTSaving.Parallel[0], 4},
		{6, false, targets.ShareGPTSaving.Parallel[1], 4},
		{2, true, targets.ShareGPTSaving.Beam[0], 4},
		{6, true, targets.ShareGPTSaving.Beam[1], 0},
	} {
		v, err := b.saved("sharegpt", rate, x.n, x.beam, nil)
		if err != nil {
			return err
		}
		name := "samples"
		if x.beam {
			name = "beams"
		}
		item := fmt.Sprintf("§6.3, ShareGPT, %d %s, saving at 1 request/s, a rate of ours", x.n, name)
		if x.points > 0 {
			b.checkWithinPoints(chart.Calibrated, item, v, x.paper, x.points)
			continue
		}
		b.checkKnownMiss(item, fmt.Sprintf("%.2f %%", x.paper), v, 70, 84,
			"beams part too late: one is replaced as often in a long answer as in Alpaca's short ones, to which the "+
				"probability is fitted")
	}
	return nil
}

func formatRange(r [2]float64) string { return fmt.Sprintf("%g to %g", r[0], r[1]) }
