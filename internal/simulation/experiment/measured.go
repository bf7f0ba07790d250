package experiment

import (
	_ "embed"
	"fmt"
	"slices"

	"llmmemory/internal/simulation/chart"
)

//go:embed attention.json
var attentionJSON []byte

var measured = embedded[struct {
	Machine string `json:"machine"`
	Date    string `json:"date"`
	Threads int    `json:"threads"`
	Shape   string `json:"shape"`
	Paged   []struct {
		Batch   int     `json:"batch"`
		Context int     `json:"context"`
		Micros  float64 `json:"paged_us"`
		Ratio   float64 `json:"ratio"`
	} `json:"paged"`
	Sizes []struct {
		Tokens int     `json:"tokens"`
		Decode float64 `json:"decode_us"`
		Swap   float64 `json:"swap_us"`
	} `json:"block_sizes"`
}](attentionJSON)

func measuredOn() string {
	threads := fmt.Sprintf("%d threads", measured.Threads)
	if measured.Threads == 1 {
		threads = "1 thread"
	}
	return fmt.Sprintf("Measured on this machine, not simulated: %s; %s, %s; %s.",
		measured.Machine, measured.Date, threads, measured.Shape)
}

func one(v float64) chart.Value { return chart.Value{Mean: v, Seeds: 1} }

// paged makes Fig. 18a, measured on one processor: the time of attention over blocks, divided by the time of
// attention over contiguous memory.
func (b *bench) paged() error {
	paper := chart.Between(targets.Fig18a.Ratio[0], targets.Fig18a.Ratio[1])
	contexts, series, positions := []string{}, []chart.Series{}, map[int]int{}
	maximum := 0.0
	for _, p := range measured.Paged {
		if name := fmt.Sprint(p.Context); !slices.Contains(contexts, name) {
			contexts = append(contexts, name)
		}
		i, ok := positions[p.Batch]
		if !ok {
			i = len(series)
			positions[p.Batch], series = i, append(series, chart.Series{Name: fmt.Sprintf("batch %d", p.Batch)})
		}
		v := one(p.Ratio)
		if slices.Contains(targets.Fig18a.Contexts, p.Context) {
			v.Paper = paper
		}
		series[i].Values = append(series[i].Values, v)
		maximum = max(maximum, p.Ratio)
	}
	var sizes []string
	var decode []chart.Value
	for _, s := range measured.Sizes {
		sizes, decode = append(sizes, fmt.Sprint(s.Tokens)), append(decode, one(s.Decode))
	}
	b.checkWithinRange(chart.Measured, "Fig. 18a, the most that paged attention takes, times contiguous",
		formatRange(targets.Fig18a.Ratio), one(maximum), 0, targets.Fig18a.Ratio[0])
	b.add(chart.Figure{
		Name: "fig18a-paged-attention", Title: "Attention over blocks (Fig. 18a)", Kind: chart.Measured,
		Panels: []chart.Panel{
			bars("blocks of 16, scattered", "context (tokens)", chart.YAxis{Title: "time of contiguous memory (times)"}, contexts,
				series...),
			bars("8 sequences of 1,024 tokens", "block size (tokens)", chart.YAxis{Title: "time of a layer (µs)", Log: true}, sizes,
				chart.Series{Name: "decoding", Values: decode}),
		},
		Seeds: "medians",
		Note: measuredOn() + " The paper measures a kernel on an A100 against FasterTransformer's. Blocks that are not a " +
			"multiple of 16 tokens are unpacked first.",
	})
	return nil
}

// swapMeasured makes a figure like Fig. 19a with measured times. In these measurements, the pool of the GPU and the
// pool of the CPU are both in main memory.
func (b *bench) swapMeasured() {
	var sizes []string
	var swap []chart.Value
	for _, s := range measured.Sizes {
		sizes, swap = append(sizes, fmt.Sprint(s.Tokens)), append(swap, one(s.Swap/1000))
	}
	b.add(chart.Figure{
		Name: "fig19-swap-measured", Title: "Swapping between two pools of host memory", Kind: chart.Measured,
		Panels: []chart.Panel{bars("256 tokens, 32 layers", "block size (tokens)", chart.YAxis{Title: "overhead (ms)"}, sizes,
			chart.Series{Name: "swap out and in", Values: swap})},
		Seeds: "medians",
		Note: measuredOn() + " A copy in memory has no cost for each transfer, which makes small " +
			"blocks slow over PCIe.",
	})
}
