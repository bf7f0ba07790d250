package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"llmmemory/internal/jobs"
	"llmmemory/internal/sim"
	"llmmemory/internal/sim/capacity"
	"llmmemory/internal/sim/scenario"
	"llmmemory/internal/sim/sizing"
)

func planCommand() *cobra.Command {
	q := sizing.Question{Scenario: scenario.Scenario{Seed: 1}}
	var slo, folder string
	c := &cobra.Command{
		Use:   "plan",
		Short: "How many requests a second fit, what limits them, what to take",
		Long: "plan finds the highest rate of requests that holds a service level objective, finds what limits\n" +
			"it by making one thing after the other twice as good, and compares block sizes and systems.\n" +
			"With --target it also says how many blocks, and how many GPUs, a rate takes.\n\n" +
			"Objectives, several with commas between them:\n" +
			"  0.5s/token     normalized latency: from arrival to end, by tokens of the answer, the paper's\n" +
			"  ttft<2s@p99    time to the first token\n" +
			"  tpot<100ms@p90 time for each further token\n" +
			"  e2e<30s@p50    time of the whole answer\n" +
			"Behind the @ is what of all requests: mean (default), p50, p99.9, max and so on.\n\n" +
			"What is answered lasts: it holds for an hour of arrivals, and for 40 times as long as an answer\n" +
			"takes, under the seeds of the search and four others. Runs are made as long as that takes;\n" +
			"--duration and --requests are the least that they have. A trace keeps its shape, bursts too; its\n" +
			"arrivals only come faster or slower. All its rows are taken, if --requests and --duration do not\n" +
			"say otherwise; one that is too short to tell what lasts is refused.",
		Example: "  llmsim plan --slo 0.5s/token\n" +
			"  llmsim plan --model llama-3-8b --gpu a100-40gb --trace BurstGPT_1.csv \\\n" +
			"    --slo 'ttft<2s@p99,tpot<100ms@p90'\n" +
			"  llmsim plan --setup llama-3-70b --trace mooncake_trace.jsonl --max-len 131072 --slo 'ttft<30s@p90'\n" +
			"  llmsim plan --model qwen2.5-7b --gpu l4 --trace own.csv --slo 100ms/token --target 20 -o plan\n" +
			"  llmsim plan --system sosp --all-systems --workload alpaca --slo 0.5s/token",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if q.SLO, err = capacity.ParseSLO(slo); err != nil {
				return err
			}
			if q.Seeds < 1 || !(q.Precision > 0 && q.Precision < 1) {
				return fmt.Errorf("--seeds %d, --precision %g: want at least 1 seed and a precision between 0 and 1", q.Seeds, q.Precision)
			}
			if err := checkUsed(&q.Scenario, q.Scenario.Server.System); err != nil {
				return err
			}
			if folder != "" {
				if err := jobs.CheckFolder(folder); err != nil {
					return err
				}
			}
			var stop func()
			q.Progress, stop = counted("searches")
			report, err := sizing.Size(c.Context(), q)
			stop()
			if err != nil {
				return err
			}
			if folder != "" {
				err = report.Save(folder)
			}
			return errors.Join(report.Write(c.OutOrStdout()), err)
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&slo, "slo", "0.5s/token", "what has to hold: see above")
	f.Float64Var(&q.Target, "target", 0, "requests a second that are wanted: say how many blocks and GPUs they take (default: none)")
	f.StringVarP(&folder, "out", "o", "", "folder for plan.json, the figures as SVG, PNG and CSV, and index.html")
	f.StringVar(&q.Scenario.Server.System, "system", "", "what serves: "+strings.Join(sim.Systems(), ", ")+" (default vllm-v1)")
	f.BoolVar(&q.AllSystems, "all-systems", false, "compare with Orca and FasterTransformer too")
	addBlockSize(f, &q.Scenario.Server)
	addRequests(f, &q.Scenario)
	f.Lookup("duration").Usage = "seconds of arrivals, at least; of a trace those that are taken, at its own rate"
	f.Lookup("requests").Usage = "requests of a run, at least; of a trace those that are taken (default: all)"
	f.IntVar(&q.Seeds, "seeds", 3, "runs of the same with other random numbers, from --seed on; a trace needs one")
	f.Float64Var(&q.Precision, "precision", 0.02, "how exactly a rate is found: 0.02 is to 2 %")
	addModel(f, &q.Scenario)
	addDecoding(f, &q.Scenario.Decoding)
	addMemory(f, &q.Scenario.Server)
	return c
}
