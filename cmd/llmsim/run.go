package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
	"llmmemory/internal/terminal"
)

func runCommand() *cobra.Command {
	var s scenario.Scenario
	var asJSON bool
	c := &cobra.Command{
		Use:   "run",
		Short: "Run one configuration",
		Long: "run serves a workload with one system and prints throughput, latencies and the use of memory.\n" +
			"The normalized latency of a request is its end-to-end latency divided by the tokens of its answer.\n" +
			"Averages over iterations are of the time from --from until --until. The run ends when all\n" +
			"requests are answered, or with --stop at --until.",
		Example: "  llmsim run --system sosp --workload sharegpt --rate 2\n" +
			"  llmsim run --system orca-max --rate 2 --duration 3600 --from 600 --stop\n" +
			"  llmsim run --model llama-3-8b --gpu a100-40gb --trace BurstGPT_1.csv --requests 10000\n" +
			"  llmsim run --workload alpaca --rate 20 --system sosp --samples 4 --beam\n" +
			"  llmsim run --rate inf --max-concurrency 32 --requests 1000 --goodput 'ttft<1s,tpot<60ms'\n" +
			"  llmsim run --rate 4 --burstiness 0.3 --setup llama-3-8b\n" +
			"  llmsim run --rate 2 --turns 4 --think 20 --setup llama-3-8b\n" +
			"  llmsim run --trace mooncake_trace.jsonl --setup llama-3-70b --max-len 131072",
		Args: onlyFlags,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.Check(s.Server.System); err != nil {
				return err
			}
			plan, err := scenario.Open(s)
			if err != nil {
				return err
			}
			result, err := runWithProgress(c.Context(), plan)
			if err != nil && (result == nil || !errors.Is(err, context.Canceled)) {
				return err
			}
			if err == nil && result.Answered == 0 {
				err = nothingServed(result)
			}
			var ends []*sim.Result
			if err == nil {
				ends, err = plan.RunWithin(c.Context())
			}
			if asJSON {
				return errors.Join(err, writeJSON(c.OutOrStdout(), struct {
					Scenario scenario.Scenario `json:"scenario"`
					Result   *sim.Result       `json:"result"`
					Range    []*sim.Result     `json:"range,omitempty"` // of the fastest and of the slowest server
				}{plan.Scenario, result, ends}))
			}
			return errors.Join(err, writeSummary(c.OutOrStdout(), plan, result, ends))
		},
	}
	f := c.Flags()
	f.SortFlags = false
	addRun(f, &s)
	addWindow(f, &s)
	f.BoolVar(&asJSON, "json", false, "print the scenario and the result as JSON")
	return c
}

// nothingServed returns why no request was answered.
func nothingServed(r *sim.Result) error {
	switch {
	case r.Arrived == 0:
		return errors.New("no request arrived: take a longer --duration or a higher --rate")
	case r.Refusal != "":
		return fmt.Errorf("none of %d requests was served; the first was refused: %s", r.Arrived, r.Refusal)
	}
	return fmt.Errorf("none of %d requests was served", r.Arrived)
}

// runWithProgress runs the plan. On a terminal, it shows how many requests have been answered.
func runWithProgress(ctx context.Context, plan *scenario.Plan) (*sim.Result, error) {
	if !terminal.StderrIsTerminal() {
		return plan.Run(ctx, nil, nil)
	}
	progress := terminal.NewProgress("answers")
	defer progress.Clear()
	expected := plan.Expected()
	return plan.Run(ctx, nil, func(_ float64, arrived, answered int) { progress.Show(answered, max(expected, arrived)) })
}

func writeSummary(out io.Writer, plan *scenario.Plan, r *sim.Result, ends []*sim.Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	s := &plan.Scenario
	v := &s.Server
	fmt.Fprintf(w, "system\t%s: %s\n", v.System, plan.System.About)
	about := plan.About
	if plan.Trust != "" {
		about = fmt.Sprintf("%s (%s): %s", s.Workload, plan.Trust, about)
	}
	if plan.Trace != nil && 0 < s.Requests && s.Requests < plan.Trace.Requests {
		about += fmt.Sprintf("; the first %d are served", s.Requests)
	}
	fact := func(name, text string) { writeFact(w, name, text, len("normalized latency  ")) }
	fact("requests", about)
	if text := s.Decoding.String(); text != "" {
		fact("answers", text)
	}
	fact("cost", plan.Model.Describe()+"; "+plan.Model.Constants())
	pool := fmt.Sprintf("%d blocks of %d tokens (%d slots), %d on the CPU", v.NumGPUBlocks, v.BlockSize,
		v.NumGPUBlocks*v.BlockSize, v.NumCPUBlocks)
	if share := plan.PoolShare(); share > 0 {
		pool += fmt.Sprintf("; %g of each GPU's memory may be used", share)
	}
	if sorting := plan.SortingPool(); 10*sorting < 9*v.NumGPUBlocks && sorting > 0 {
		pool += fmt.Sprintf("; %d blocks if the sampler sorts, as vLLM's until 0.15 without FlashInfer", sorting)
	}
	fact("pool", pool)
	fmt.Fprintf(w, "served\t%d of %d requests in %s s, %d iterations\n", r.Answered, r.Arrived, scenario.Digits(r.Seconds),
		r.Iterations)
	if r.Refused+r.Dropped > 0 {
		fact("not served", fmt.Sprintf("%d refused, %d dropped: too long for the server", r.Refused, r.Dropped))
	}
	if r.Refusal != "" {
		fact("first refusal", r.Refusal)
	}
	if 2*(r.Refused+r.Dropped) > r.Arrived {
		fact("", "These are most of them: take a model for longer sequences (--setup, --model) or more memory.")
	}
	if r.Seconds > 0 {
		end := "until the last one"
		if s.Stop {
			end = "until the run was stopped"
		}
		fmt.Fprintf(w, "throughput\t%.2f requests/s, %.0f tokens/s of answers, %s\n", float64(r.Answered)/r.Seconds,
			float64(r.Generated)/r.Seconds, end)
	}
	if s.Goodput != (sim.Goodput{}) {
		fmt.Fprintf(w, "goodput\t%.2f requests/s: %d of %d requests within all limits\n", r.Goodput, r.Good, r.Arrived)
	}
	writeLatencies(w, r)
	writeMemory(w, plan.System, r)
	if len(ends) > 0 {
		fact("range", rangeOf(ends)+": "+plan.Setup.Margin().String())
	}
	return w.Flush()
}

func writeLatencies(w io.Writer, r *sim.Result) {
	fmt.Fprintf(w, "\tmean\tp50\tp90\tp95\tp99\tmax\n")
	row := func(name string, scale float64, unit string, d sim.Spread) {
		if r.Answered == 0 {
			fmt.Fprintf(w, "%s\t-\t-\t-\t-\t-\t-\t%s\n", name, unit)
			return
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, scenario.Digits(scale*d.Mean), scenario.Digits(scale*d.P50),
			scenario.Digits(scale*d.P90), scenario.Digits(scale*d.P95), scenario.Digits(scale*d.P99), scenario.Digits(scale*d.Max), unit)
	}
	row("normalized latency", 1, "s/token", r.Normalized)
	row("end to end", 1, "s", r.EndToEnd)
	row("to the first token", 1, "s", r.TTFT)
	row("between tokens", 1000, "ms", r.TPOT)
}

func rangeOf(ends []*sim.Result) string {
	rangeText := func(quantity func(r *sim.Result) float64) string {
		a, b := quantity(ends[0]), quantity(ends[1])
		return scenario.Digits(min(a, b)) + " to " + scenario.Digits(max(a, b))
	}
	perSecond := func(r *sim.Result) float64 { return float64(r.Answered) / max(r.Seconds, 1e-9) }
	return fmt.Sprintf("%s requests/s; p50 to the first token %s s, between tokens %s ms, end to end %s s",
		rangeText(perSecond), rangeText(func(r *sim.Result) float64 { return r.TTFT.P50 }),
		rangeText(func(r *sim.Result) float64 { return 1000 * r.TPOT.P50 }),
		rangeText(func(r *sim.Result) float64 { return r.EndToEnd.P50 }))
}

func writeMemory(w io.Writer, system *sim.System, r *sim.Result) {
	a := &r.Window
	if a.Iterations == 0 {
		fmt.Fprint(w, "averages over\tno iteration: none is between --from and --until\n")
	} else {
		fmt.Fprintf(w, "averages over\t%d iterations of %.1f ms\n", a.Iterations, a.Milli)
		fmt.Fprintf(w, "batch\t%.2f requests, %.2f sequences; %.2f requests wait\n", a.Requests, a.Sequences, a.Waiting)
	}
	if system.Memory != sim.Static && a.Iterations > 0 {
		fmt.Fprintf(w, "of the pool\t%.1f %% token states, %.1f %% reserved, %.1f %% internal, %.1f %% external or free\n",
			100*a.Tokens, 100*a.Reservation, 100*a.Internal, 100*a.External)
	}
	if a.Saving > 0.0005 {
		fmt.Fprintf(w, "sharing saves\t%.1f %% of the blocks\n", 100*a.Saving)
	}
	if r.Hits > 0 {
		fmt.Fprintf(w, "prefix hits\t%d tokens, %.1f %% of those to be computed, after preemptions too\n", r.Hits,
			100*float64(r.Hits)/float64(r.Hits+r.Prompted))
	}
	if r.Recomputed+r.Swapped > 0 {
		fmt.Fprintf(w, "preemptions\t%d recomputed, %d swapped, %d blocks moved\n", r.Recomputed, r.Swapped, r.SwapBlocks)
	}
	if r.CopyBlocks > 0 {
		fmt.Fprintf(w, "copied blocks\t%d\n", r.CopyBlocks)
	}
}
