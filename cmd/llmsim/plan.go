package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"llmmemory/internal/jobs"
	"llmmemory/internal/simulation/capacity"
	"llmmemory/internal/simulation/plans"
	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
	"llmmemory/internal/terminal"
)

const planHelp = `plan finds the highest rate of requests that holds a service level objective. It finds what limits
the rate by making one thing after the other twice as good, and compares block sizes and prefix
caching. With --target it also finds how many blocks, and how many GPUs, a rate needs.

Objectives, several with commas between them:
  0.5s/token     the paper's normalized latency: end-to-end latency / tokens of the answer
  ttft<2s@p99    time to the first token
  tpot<100ms@p90 time for each further token
  e2e<30s@p50    time of the whole answer
The statistic over all requests follows the @: mean (default), p50, p99.9, max.

The rate lasts: it holds for an hour of arrivals, and for 40 times as long as an answer takes, under
the seeds of the search and, with a workload, four others or more. --duration and --requests make
the runs longer. A trace keeps its shape, including bursts; only the speed of its arrivals changes.
All its rows are used, unless --requests or --duration limits them. A trace that is too short to
show what lasts is refused.

With -o every finished run is kept in the folder; after an interruption, the same command resumes.`

const planExamples = `  llmsim plan --slo 0.5s/token
  llmsim plan --model llama-3-8b --gpu a100-40gb --trace BurstGPT_1.csv \
    --slo 'ttft<2s@p99,tpot<100ms@p90'
  llmsim plan --setup llama-3-70b --trace mooncake_trace.jsonl --max-len 131072 --slo 'ttft<30s@p90'
  llmsim plan --model qwen2.5-7b --gpu l4 --trace own.csv --slo 100ms/token --target 20 -o plan
  llmsim plan --system sosp --workload alpaca --slo 0.5s/token`

// planOptions are the flags of llmsim plan.
type planOptions struct {
	q       plans.Question
	slo     string
	verbose bool
}

func planCommand() *cobra.Command {
	o := planOptions{q: plans.Question{Scenario: scenario.Scenario{Load: scenario.Load{Seed: 1}}}}
	c := &cobra.Command{
		Use:     "plan",
		Short:   "Find how many requests a second fit, what limits them, what to change",
		Long:    planHelp,
		Example: planExamples,
		Args:    onlyFlags,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	f, q := c.Flags(), &o.q
	f.SortFlags = false
	f.StringVar(&o.slo, "slo", "0.5s/token", "objectives: see above")
	f.Float64Var(&q.Target, "target", 0,
		"requests a second for which the report has the blocks and GPUs needed (default: none)")
	f.StringVarP(&q.Folder, "out", "o", "",
		"folder for plan.json, the figures as SVG, PNG and CSV, index.html, and finished runs")
	f.BoolVar(&o.verbose, "verbose", false, "also print the constants of the times of iterations")
	f.StringVar(&q.Scenario.Server.System, "system", "", "system to simulate: "+strings.Join(sim.Systems(),
		", ")+" (default vllm-v1)")
	addBlockSize(f, &q.Scenario.Server)
	addRequests(f, &q.Scenario)
	f.Lookup("duration").Usage = "least seconds of arrivals; of a trace, the seconds to use, at its own rate"
	f.Lookup("requests").Usage = "least requests of a run; of a trace, the requests to use (default: all)"
	q.Seeds, q.Precision = 3, 0.02
	f.Var(positive[int]{&q.Seeds}, "seeds", "number of seeds, beginning with --seed; a trace needs one")
	f.Var(positive[float64]{&q.Precision}, "precision", "relative precision of the rate: 0.02 is 2 %")
	addModel(f, &q.Scenario)
	addDecoding(f, &q.Scenario.Decoding)
	addMemory(f, &q.Scenario.Server)
	return c
}

// run checks all settings before the search.
func (o *planOptions) run(c *cobra.Command) (err error) {
	q := &o.q
	if q.SLO, err = capacity.ParseSLO(o.slo); err != nil {
		return err
	}
	if err := q.Scenario.Check(q.Scenario.Server.System); err != nil {
		return err
	}
	if q.Folder != "" {
		if err := jobs.CheckFolder(q.Folder); err != nil {
			return err
		}
	}
	progress := terminal.NewProgress("searches")
	q.Progress = progress.Show
	report, err := plans.Size(c.Context(), *q)
	progress.Clear()
	if errors.Is(err, context.Canceled) && q.Folder != "" {
		fmt.Fprintf(c.ErrOrStderr(), "finished runs are kept in %s: the same command resumes\n", q.Folder)
	}
	if err != nil {
		return err
	}
	if q.Folder != "" {
		fmt.Fprintln(c.ErrOrStderr(), report.Kept)
		err = report.Save(q.Folder)
	}
	if err == nil && report.Capacity.Rate == 0 {
		err = fmt.Errorf("nothing holds %s", q.SLO)
	}
	return errors.Join(report.Write(c.OutOrStdout(), o.verbose), err)
}
