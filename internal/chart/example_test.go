package chart_test

import (
	"fmt"
	"os"
	"path/filepath"

	"llmmemory/internal/chart"
)

// A line figure, a figure of grouped bars and one of stacked bars.
func ExampleWrite() {
	latency := chart.Figure{
		Name: "fig12-latency", Title: "Normalized latency against request rate", Kind: chart.Calibrated,
		Seeds: "seeds 1-8, 3,600 s", Note: "Within 10% of a knee the latency is chaotic.",
		Panels: []chart.Panel{{
			Title: "ShareGPT",
			X:     chart.XAxis{Title: "request rate (requests/s)"},
			Y:     chart.YAxis{Title: "normalized latency (s/token)", Max: 1},
			Data: chart.Lines{
				Lines: []chart.Line{{Name: "vLLM", Points: []chart.Point{
					{X: 1, Value: chart.Value{Mean: 0.05, SD: 0.01, Seeds: 8}},
					{X: 2, Value: chart.Value{Mean: 0.2, SD: 0.1, Seeds: 8, Paper: chart.Printed(0.18)}},
					{X: 2.2, Value: chart.Value{Mean: 1.6, SD: 0.4, Seeds: 8}}, // cut at 1
				}}},
				Marks:    []chart.Mark{{Series: "vLLM", At: chart.Range{Low: 1, High: 2}}},
				MarksAre: "paper: rates tried around the knee",
			},
		}},
	}
	batch := chart.Figure{
		Name: "fig13-batched-requests", Title: "Requests in a batch", Kind: chart.Predicted, Seeds: "seeds 1-8, 3,600 s",
		Panels: []chart.Panel{{
			Title: "ShareGPT, 2 requests/s",
			X:     chart.XAxis{Title: "system"},
			Y:     chart.YAxis{Title: "batched requests (mean)"},
			Data: chart.Bars{
				Groups: []string{"Orca (Max)", "Orca (Oracle)"},
				Series: []chart.Series{{Name: "ours", Values: []chart.Value{
					{Mean: 7, SD: 0, Seeds: 8, Paper: chart.Printed(7)},
					{Mean: 13.3, SD: 0.06, Seeds: 8, Paper: chart.Printed(13.62)},
				}}},
			},
		}},
	}
	memory := chart.Figure{
		Name: "fig2-memory", Title: "What the KV cache's memory holds", Kind: chart.Predicted, Seeds: "seeds 1-8, 900 s",
		Panels: []chart.Panel{{
			X: chart.XAxis{Title: "system"},
			Y: chart.YAxis{Title: "share of the pool (%)", Max: 100},
			Data: chart.Stacks{
				Parts: []string{"token states", "free and other"},
				Columns: []chart.Column{{Name: "vLLM", Parts: []chart.Value{
					{Mean: 96.27, SD: 0.11, Seeds: 8, Paper: chart.Printed(96.3)},
					{Mean: 3.73, SD: 0.11, Seeds: 8},
				}}},
			},
		}},
	}
	checks := []chart.Check{{Item: "Fig. 2, vLLM, token states", Paper: "96.3 %", Ours: "96.27 %", Difference: "−0.03",
		Tolerance: "±2 points", OK: true, Kind: chart.Predicted}}

	dir, err := os.MkdirTemp("", "figures-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if err := chart.Write(dir, []chart.Figure{latency, batch, memory}, checks...); err != nil {
		panic(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.svg"))
	for _, f := range files {
		fmt.Println(filepath.Base(f))
	}
	if err := chart.WriteTable(os.Stdout, checks); err != nil {
		panic(err)
	}
	// Output:
	// fig12-latency.svg
	// fig13-batched-requests.svg
	// fig2-memory.svg
	// ok     Fig. 2, vLLM, token states (predicted)
	//        paper 96.3 %, ours 96.27 %, difference −0.03, tolerance ±2 points
	// predicted: 1 of 1 within their tolerance: nothing was fitted to the paper's values shown here
}
