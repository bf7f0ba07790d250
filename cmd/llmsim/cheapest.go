package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"llmmemory/internal/sim/capacity"
	"llmmemory/internal/sim/cost"
	"llmmemory/internal/sim/scenario"
	"llmmemory/internal/sim/sizing"
)

func cheapestCommand() *cobra.Command {
	q := sizing.Question{Scenario: scenario.Scenario{Seed: 1}}
	var slo, prices string
	var gpus []string
	var asJSON bool
	c := &cobra.Command{
		Use:   "cheapest --model M --target R",
		Short: "Find the GPUs that hold an objective at a rate for the least money",
		Long: "cheapest finds, for each GPU and 1 to 8 of them in a server, the rate that holds an objective (see\n" +
			"llmsim plan --help), how many servers a target takes, and what they cost an hour, for a million\n" +
			"tokens, and in energy. The cheapest offer is confirmed for an hour, as a plan is. The others\n" +
			"are from shorter runs, and none of them is cheaper.",
		Example: "  llmsim cheapest --model llama-3-8b --target 20 --slo 'ttft<1s@p99,tpot<50ms@p99'\n" +
			"  llmsim cheapest --model llama-3-70b --gpus h100-80gb,h200-141gb --target 5 --prices mine.json",
		Args: onlyFlags,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if q.SLO, err = capacity.ParseSLO(slo); err != nil {
				return err
			}
			if err := checkUsed(&q.Scenario, q.Scenario.Server.System); err != nil {
				return err
			}
			if err := checkSearch(&q); err != nil {
				return err
			}
			list, err := openPrices(c.ErrOrStderr(), prices, gpus...)
			if err != nil {
				return err
			}
			if len(gpus) == 0 {
				gpus = cost.GPUs()
			}
			all, err := sizing.Cheapest(c.Context(), q, gpus, list)
			if err != nil {
				return err
			}
			if asJSON {
				err = writeJSON(c.OutOrStdout(), all)
			} else {
				err = sizing.WriteOffers(c.OutOrStdout(), q, all, list)
			}
			if err != nil {
				return err
			}
			return sizing.Missing(q, all)
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&q.Scenario.Model, "model", "", "a name of llmsim list, or a .json file")
	f.Float64Var(&q.Target, "target", 0, "wanted requests a second")
	f.StringVar(&slo, "slo", "0.5s/token", "objectives: see llmsim plan --help")
	f.StringSliceVar(&gpus, "gpus", nil, "names or .json files (default: all of llmsim list)")
	f.StringVar(&prices, "prices", "",
		"file of prices and watts by GPU (default: the built-in one; the output names its source)")
	f.StringVar(&q.Scenario.Engine, "engine", "",
		"engine whose times are used: see llmsim plan --help (default: for each GPU vllm's newest release with constants "+
			"for it, else "+scenario.DataSheet+")")
	f.StringVar(&q.Scenario.Weights, "weights", "",
		"type of the weights: fp16, bf16, fp8, int8, int4, fp4 (default: the model's)")
	f.StringVar(&q.Scenario.KV, "kv", "", "type of keys and values: fp16, bf16, fp8, int8 (default: the model's)")
	f.Float64Var(&q.Scenario.MemoryUtilization, "memory-utilization", 0,
		fmt.Sprintf("part of each GPU's memory that may be used (default %g)", scenario.DefaultMemoryUtilization))
	f.IntVar(&q.Scenario.Server.MaxModelLen, "max-len", 0, "largest number of tokens of a sequence (default: the model's)")
	f.StringVar(&q.Scenario.Server.System, "system", "", "system that serves (default vllm-v1)")
	f.IntVar(&q.Seeds, "seeds", 1, "number of seeds, from --seed on")
	f.Float64Var(&q.Precision, "precision", 0.03, "relative precision of the rate")
	addRequests(f, &q.Scenario)
	f.BoolVar(&asJSON, "json", false, "print the offers as JSON")
	_ = c.MarkFlagRequired("model")
	_ = c.MarkFlagRequired("target")
	return c
}
