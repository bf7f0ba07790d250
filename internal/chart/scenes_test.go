package chart

import "fmt"

// The figures of the tests are made up; their shapes are those of the paper's.

func latencies() Figure {
	names := []string{"vLLM", "Orca (Oracle)", "Orca (Pow2)", "Orca (Max)", "FasterTransformer"}
	panel := func(title string, knees []float64, step float64, marks []Mark) Panel {
		var l Lines
		for i, name := range names {
			line := Line{Name: name}
			for k := 1; k <= 12; k++ {
				x := float64(k) * step
				y := 0.03 + 0.01*float64(i) + 0.02*x/knees[i]
				if x > knees[i] {
					y += (x - knees[i]) / knees[i] * 3
				}
				p := Point{X: x, Value: Value{Mean: y, SD: y * 0.12, Seeds: 8}}
				if i == 0 && k == 6 {
					p.Paper = Printed(y * 0.8)
				}
				line.Points = append(line.Points, p)
				if y > 3 {
					break
				}
			}
			l.Lines = append(l.Lines, line)
		}
		l.Marks, l.MarksAre = marks, "paper: rates tried around the knee"
		return Panel{Title: title, X: XAxis{Title: "request rate (requests/s)"}, Y: YAxis{Title: "normalized latency (s/token)", Max: 1}, Data: l}
	}
	return Figure{
		Name: "fig12-latency", Title: "Normalized latency against request rate, OPT-13B on one A100", Kind: Calibrated,
		Seeds: "seeds 1-8, 3,600 s", Note: "The cost model was fitted to the two vLLM values of Fig. 13. Within 10% of a knee the latency is chaotic: it differs between seeds by several times.",
		Panels: []Panel{
			panel("ShareGPT", []float64{2, 1.2, 1, 0.75, 0.25}, 0.2, []Mark{{"vLLM", Range{1, 2}}, {"Orca (Oracle)", Range{0.5, 1.5}}, {"Orca (Pow2)", Range{0.25, 0.9}}, {"Orca (Max)", Range{0.2, 0.75}}, {"FasterTransformer", Range{0.01, 0.35}}}),
			panel("Alpaca", []float64{32, 24, 18, 4.3, 2.7}, 3, []Mark{{"vLLM", Range{20, 31.5}}, {"Orca (Oracle)", Range{15, 15}}}),
		},
	}
}

func batched() Figure {
	panel := func(title string, ours, sd, paper []float64, seeds int) Panel {
		s := Series{Name: "ours"}
		for i := range ours {
			s.Values = append(s.Values, Value{ours[i], sd[i], seeds, Printed(paper[i])})
		}
		return Panel{Title: title, X: XAxis{Title: "system"}, Y: YAxis{Title: "batched requests (mean)"},
			Data: Bars{Groups: []string{"Orca (Max)", "Orca (Pow2)", "Orca (Oracle)", "vLLM"}, Series: []Series{s}}}
	}
	return Figure{
		Name: "fig13-batched-requests", Title: "Requests in a batch, OPT-13B", Kind: Calibrated, Seeds: "seeds 1-8, 3,600 s",
		Note: "vLLM's bars are calibrated, Orca's are predicted.",
		Panels: []Panel{
			panel("ShareGPT, 2 requests/s", []float64{7, 9.7, 13.32, 29.7}, []float64{0, .08, .06, 1.1}, []float64{7, 9.81, 13.62, 30.42}, 8),
			panel("Alpaca, 30 requests/s", []float64{7, 43.2, 75.5, 127.6}, []float64{0, .3, .4, 2.5}, []float64{7, 43.24, 72.75, 132.44}, 5),
		},
	}
}

func savings() Figure {
	v := func(mean, sd float64, paper *Range) Value { return Value{mean, sd, 4, paper} }
	return Figure{
		Name: "fig15-saving", Title: "Memory saved by sharing blocks, Alpaca at 20 requests/s", Kind: Predicted, Seeds: "seeds 1-4, 900 s",
		Note: "Parallel sampling misses: up to 25% too high.",
		Panels: []Panel{{X: XAxis{Title: "output sequences per request"}, Y: YAxis{Title: "blocks saved (%)", Max: 60},
			Data: Bars{Groups: []string{"2", "4", "6"}, Series: []Series{
				{"parallel sampling", []Value{v(6.98, .3, Printed(6.09)), v(10.7, .4, Printed(8.53)), v(12.1, .4, Printed(9.79))}},
				{"beam search", []Value{v(38, 4, Printed(37.56)), v(54, 5, Between(44.3, 66.3)), v(67, 3, Printed(55.16))}},
				{"beam search, ShareGPT", []Value{v(38, 4, nil), v(54, 5, nil), v(57, 5, nil)}},
			}}}},
	}
}

func waste() Figure {
	column := func(name string, ours, paper []float64) Column {
		c := Column{Name: name}
		for i, o := range ours {
			v := Value{Mean: o, SD: 0.5, Seeds: 8}
			if i < len(paper) {
				v.Paper = Printed(paper[i])
			}
			c.Parts = append(c.Parts, v)
		}
		return c
	}
	return Figure{
		Name: "fig2-memory", Title: "What the KV cache's memory holds", Kind: Predicted, Seeds: "seeds 1-8, 900 s, mean over 300 to 900 s",
		Panels: []Panel{{X: XAxis{Title: "system"}, Y: YAxis{Title: "share of the pool (%)", Max: 100},
			Data: Stacks{Parts: []string{"token states", "reservation", "internal fragmentation", "external fragmentation and others"}, Columns: []Column{
				column("Orca (Max)", []float64{19.8, 12.9, 58.45, 8.85}, []float64{20.4, 13.3, 57.3, 8.9}),
				column("Orca (Pow2)", []float64{27.3, 17.7, 14.8, 40.2}, []float64{26.8, 17.9, 13.6, 41.6}),
				column("Orca (Oracle)", []float64{38.1, 24.6, 0, 37.3}, []float64{38.2, 25.2, 0, 36.6}),
				column("vLLM", []float64{96.27, 0, 2.1, 1.63}, []float64{96.3}),
			}}}},
	}
}

func blockSizes() Figure {
	v := func(mean float64) Value { return Value{Mean: mean, SD: mean / 2, Seeds: 3} }
	panel := func(title string, means ...float64) Panel {
		var b Bars
		s := Series{Name: "ours"}
		for i, m := range means {
			b.Groups = append(b.Groups, fmt.Sprint(1<<i))
			s.Values = append(s.Values, v(m))
		}
		b.Series = []Series{s}
		return Panel{Title: title, X: XAxis{Title: "block size (tokens)"}, Y: YAxis{Title: "normalized latency (s/token)", Log: true}, Data: b}
	}
	return Figure{
		Name: "fig18b-block-size", Title: "Latency by block size", Kind: OrderOnly, Seeds: "seeds 1-3, 3,600 s",
		Note:   "The model has no cost of small blocks in the kernel, so they look better than they are.",
		Panels: []Panel{panel("ShareGPT, 2.01 requests/s", .2, .2, .2, .2, .2, .24, .34, 1, 8.8), panel("Alpaca, 30.1 requests/s", .08, .08, .08, .08, .08, .09, .21, 3.4, 16.3)},
	}
}

func sweep() Figure {
	line := func(name string, f func(float64) float64) Line {
		l := Line{Name: name}
		for x := 1.; x <= 256; x *= 2 {
			l.Points = append(l.Points, Point{X: x, Value: Value{Mean: f(x), SD: f(x) / 10, Seeds: 4}})
		}
		return l
	}
	p := func(title string) Panel {
		return Panel{Title: title, X: XAxis{Title: "block size (tokens)", Log: true}, Y: YAxis{Title: "time (ms)", Log: true, Max: 200}, Data: Lines{Lines: []Line{
			line("swap in", func(x float64) float64 { return 2 + 160/x }), line("swap out", func(x float64) float64 { return 3 + 300/x }),
			line("swap in and out", func(x float64) float64 { return 5 + 460/x }), line("recompute", func(float64) float64 { return 45 }),
			line("recompute, paper's kernel", func(float64) float64 { return 38 }), line("F", func(x float64) float64 { return x }), line("G", func(x float64) float64 { return x / 2 }),
		}}}
	}
	return Figure{Name: "fig19-swap", Title: "Swapping against recomputing 256 tokens", Kind: OrderOnly, Seeds: "computed, no seeds", Panels: []Panel{p("Three"), p("of"), p("them")}}
}

// longNames are wider than their groups.
func longNames() Figure {
	var b Bars
	s := Series{Name: "worst"}
	for i := range 19 {
		b.Groups = append(b.Groups, fmt.Sprintf("0.10.%d rtx6000ada 48gb", i))
		s.Values = append(s.Values, Value{Mean: float64(i), Seeds: 1})
	}
	b.Series = []Series{s}
	return Figure{Name: "names", Title: "Names", Kind: Predicted, Seeds: "no seeds",
		Panels: []Panel{{X: XAxis{Title: "release and GPU"}, Y: YAxis{Title: "error (%)"}, Data: b}}}
}

func scenes() []Figure {
	return []Figure{waste(), latencies(), batched(), savings(), blockSizes(), sweep(), longNames()}
}
