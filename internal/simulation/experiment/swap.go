package experiment

import (
	"fmt"

	"llmmemory/internal/simulation/chart"
	"llmmemory/internal/simulation/cost"
	"llmmemory/internal/simulation/scenario"
)

// swapping makes Fig. 19: the time to swap 256 tokens and the time to compute them again, and the latencies of a
// server that does one or the other.
func (b *bench) swapping() error {
	const tokens = 256 // what the artifact's microbenchmark moves (simulation/PAPER.md §2)
	setup, err := cost.Open(scenario.PaperSetup)
	if err != nil {
		return err
	}
	var out, both, again []chart.Value
	milli := map[int]float64{}
	var recompute float64
	for _, size := range sizes {
		m, err := setup.Model(size)
		if err != nil {
			return err
		}
		blocks := (tokens + size - 1) / size
		single := 1000 * m.Seconds(cost.Work{SwapBlocks: blocks, Swaps: blocks})
		milli[size] = 2 * single
		recompute = 1000 * m.Seconds(cost.Work{Seqs: 1, Prompt: tokens, PromptContext: tokens * (tokens + 1) / 2})
		out, both, again = append(out, one(single)), append(both, one(2*single)), append(again, one(recompute))
	}
	const seconds = 1000.0
	computing, c, err := b.bySize("sharegpt", 2.01, seconds, false)
	if err != nil {
		return err
	}
	swapped, w, err := b.bySize("sharegpt", 2.01, seconds, true)
	if err != nil {
		return err
	}
	b.checkOrder("Fig. 19a, overhead of swapping 256 tokens falls with the block size",
		"falls; recomputation is constant",
		fmt.Sprintf("%.3g ms at 1, %.3g at 16, %.3g at 256; recomputation %.3g", milli[1], milli[16],
			milli[256], recompute),
		milli[1] > milli[16] && milli[16] > milli[256] && milli[1] > recompute && milli[256] < recompute)
	b.checkOrder("Fig. 19b, swapping is worse with small blocks", "worse at 1", fmt.Sprintf("%.3g against %.3g s/token",
		w[1], c[1]), w[1] > 2*c[1])
	b.checkOrder("Fig. 19b, comparable from 16 to 64", "alike", fmt.Sprintf("%.2f, %.2f, %.2f times recomputation",
		w[16]/c[16], w[32]/c[32], w[64]/c[64]),
		withinFactorTwo(w[16], c[16]) && withinFactorTwo(w[32], c[32]) && withinFactorTwo(w[64], c[64]))
	b.checkOrder("Fig. 19b, swapping is better with large blocks", "better at 256",
		fmt.Sprintf("%.3g against %.3g s/token", w[256], c[256]), w[256] < c[256])
	b.add(chart.Figure{
		Name: "fig19-swap-or-recompute", Title: "Swapping against recomputation (Fig. 19)", Kind: chart.OrderOnly,
		Panels: []chart.Panel{
			bySizePanel("256 tokens", "overhead (ms)", chart.Series{Name: "swap out or in", Values: out},
				chart.Series{Name: "swap out and in", Values: both}, chart.Series{Name: "recompute", Values: again}),
			bySizePanel("ShareGPT, 2.01 requests/s", "normalized latency (s/token)",
				chart.Series{Name: "swapping", Values: swapped}, chart.Series{Name: "recomputation", Values: computing}),
		},
		Seeds: seedsLabel(b.averageSeeds(), seconds),
		Note: "Keys and values of each layer of a block are separate transfers, with an assumed cost of 5 µs for each. The " +
			"left side is computed from the cost model, not simulated. 2.01 requests/s are on the knee, where latency is " +
			"chaotic.",
	})
	b.swapMeasured()
	return nil
}

func withinFactorTwo(a, b float64) bool { return a < 2*b && b < 2*a }
