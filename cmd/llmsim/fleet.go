package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"llmmemory/internal/simulation/cost"
	"llmmemory/internal/simulation/fleet"
	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
	"llmmemory/internal/terminal"
)

// fleetOptions are the flags of llmsim fleet.
type fleetOptions struct {
	s           scenario.Scenario
	replicas    int
	furtherGPUs []string
	routers     []string
	config      fleet.Config
	margin      *cost.Margin // of the first kind of replica; nil if not known
	asJSON      bool
}

func fleetCommand() *cobra.Command {
	var o fleetOptions
	c := &cobra.Command{
		Use:   "fleet",
		Short: "Run many replicas behind a router",
		Long: "fleet serves a workload with several replicas. A router sends each request to one of them:\n" +
			"  random, round-robin\n" +
			"  least-loaded   the replica with the fewest unanswered requests\n" +
			"  power-of-two   the less loaded of two random replicas\n" +
			"  prefix         the replica with the least work: blocks of the prompt that it has not cached,\n" +
			"                 and those of prompts it has not answered. The router learns what is cached\n" +
			"                 from the replicas' events, --event-delay seconds late\n" +
			"Several routers, or all, are compared on the same requests.",
		Example: "  llmsim fleet --model llama-3-8b --gpu l4 --replicas 4 --rate 1.5 --turns 4 --think 10 \\\n" +
			"    --router all\n" +
			"  llmsim fleet --model llama-3-8b --gpu l4 --replicas 4 --also h100-80gb:1 --rate 20\n" +
			"  llmsim fleet --setup llama-3-70b --trace mooncake_trace.jsonl --max-len 131072 \\\n" +
			"    --replicas 8 --router prefix,random",
		Args: onlyFlags,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	f := c.Flags()
	f.SortFlags = false
	f.IntVar(&o.replicas, "replicas", 2, "number of replicas")
	f.StringSliceVar(&o.routers, "router", []string{string(fleet.LeastLoaded)},
		"one router, several with commas between them, or all")
	f.Float64Var(&o.config.EventDelay, "event-delay", 0.05,
		"seconds until the prefix router knows what a replica has cached")
	f.StringSliceVar(&o.furtherGPUs, "also", nil, "more replicas of the same model on other GPUs: GPU:N")
	f.BoolVar(&o.asJSON, "json", false, "print the results as JSON")
	addRun(f, &o.s)
	for _, name := range []string{"samples", "beam", "replace", "drafts", "accept", "draft-time"} {
		_ = f.MarkHidden(name) // a fleet's requests have one answer
	}
	return c
}

// A routed is a router with its result.
type routed struct {
	Router fleet.Router  `json:"router"`
	Result *fleet.Result `json:"result"`
}

func (o *fleetOptions) run(c *cobra.Command) error {
	ctx, out := c.Context(), c.OutOrStdout()
	if d := o.s.Decoding; d.Samples > 1 || d.Drafts > 0 {
		return fmt.Errorf("a fleet's requests have one answer each, and no drafts")
	}
	if err := o.s.Check(o.s.Server.System); err != nil {
		return err
	}
	if c.Flags().Changed("event-delay") && !slices.Contains(o.routers, string(fleet.PrefixAware)) &&
		!slices.Contains(o.routers, "all") {
		return fmt.Errorf("--event-delay does nothing without --router prefix")
	}
	plan, err := scenario.Open(o.s)
	if err != nil {
		return err
	}
	if err := o.complete(plan); err != nil {
		return err
	}
	var all []routed
	for _, name := range o.routers {
		config := o.config
		if config.Router, err = fleet.ParseRouter(name); err != nil {
			return err
		}
		source, done, err := plan.Source()
		if err != nil {
			return err
		}
		r, err := fleet.Run(ctx, config, source)
		done()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, routed{config.Router, r})
	}
	if o.asJSON {
		return writeJSON(out, struct {
			Scenario scenario.Scenario `json:"scenario"`
			Routers  []routed          `json:"routers"`
		}{plan.Scenario, all})
	}
	return o.write(out, plan, all)
}

func (o *fleetOptions) complete(plan *scenario.Plan) error {
	if len(o.routers) == 1 && o.routers[0] == "all" {
		o.routers = nil
		for _, r := range fleet.Routers() {
			o.routers = append(o.routers, string(r))
		}
	}
	kind := func(p *scenario.Plan, n int) fleet.Kind {
		return fleet.Kind{
			Name: fmt.Sprintf("%d x %s", p.Setup.GPUs(), p.Setup.GPU.Name), Count: n, Server: p.Scenario.Server, Cost: p.Model,
		}
	}
	o.config.Kinds = []fleet.Kind{kind(plan, o.replicas)}
	for _, item := range o.furtherGPUs {
		gpu, count, _ := strings.Cut(item, ":")
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 {
			return fmt.Errorf("--also %s: want GPU:N, such as l4:2", item)
		}
		if plan.Scenario.Model == "" {
			return fmt.Errorf("--also %s: name the model and its GPU with --model and --gpu", item)
		}
		s := o.s
		s.GPU = gpu
		other, err := plan.Vary(s)
		if err != nil {
			return fmt.Errorf("--also %s: %w", item, err)
		}
		o.config.Kinds = append(o.config.Kinds, kind(other, n))
	}
	o.margin = plan.Setup.Margin()
	o.config.Seed, o.config.Goodput, o.config.MaxConcurrency = plan.Scenario.Seed, plan.Scenario.Goodput,
		plan.Scenario.MaxConcurrency
	return nil
}

// write writes the results as text for a terminal, with a table row for each router.
func (o *fleetOptions) write(out io.Writer, plan *scenario.Plan, all []routed) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fact := func(name, text string) { writeFact(w, name, text, len("requests  ")) }
	var kinds []string
	for _, k := range o.config.Kinds {
		kinds = append(kinds, fmt.Sprintf("%d of %s", k.Count, k.Name))
	}
	fact("replicas", strings.Join(kinds, ", ")+", "+plan.Scenario.Server.System)
	fact("requests", plan.About)
	name := "cost"
	for _, k := range o.config.Kinds {
		fact(name, k.Cost.Describe())
		name = ""
	}
	fmt.Fprintln(w)
	fmt.Fprintln(w, "router\tserved/s\tttft p50, p99\ttpot p99\te2e p99\tcached\tbusiest")
	for _, x := range all {
		r := x.Result
		fmt.Fprintf(w, "%s\t%.3g\t%s, %s s\t%s ms\t%s s\t%.0f %%\t%.2f\n", x.Router, float64(r.Answered)/r.Seconds,
			scenario.Digits(r.TTFT.P50), scenario.Digits(r.TTFT.P99), scenario.Digits(1000*r.TPOT.P99), scenario.Digits(r.EndToEnd.P99), 100*r.HitRate(),
			r.Imbalance())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	o.writeNotes(out, all)
	return nil
}

// lastAnswers returns the time of the last answer in seconds, or a range if it differs between routers.
func lastAnswers(all []routed) string {
	byEnd := func(a, b routed) int { return cmp.Compare(a.Result.Seconds, b.Result.Seconds) }
	first, last := slices.MinFunc(all, byEnd).Result.Seconds, slices.MaxFunc(all, byEnd).Result.Seconds
	if scenario.Digits(first) == scenario.Digits(last) {
		return scenario.Digits(last)
	}
	return scenario.Digits(first) + " to " + scenario.Digits(last)
}

func (o *fleetOptions) writeNotes(out io.Writer, all []routed) {
	for _, x := range all {
		r := x.Result
		var notes []string
		if r.Answered < r.Arrived {
			notes = append(notes, fmt.Sprintf("%d of %d refused", r.Refused, r.Arrived))
		}
		if o.config.Goodput != (sim.Goodput{}) {
			notes = append(notes, fmt.Sprintf("goodput %.2f requests/s", r.Goodput))
		}
		if len(notes) > 0 {
			fmt.Fprintf(out, "%s: %s\n", x.Router, strings.Join(notes, "; "))
		}
	}
	fmt.Fprintf(out, "ttft, tpot, e2e: time to the first token, for each further one, of the whole answer.\n"+
		"served/s: until the last answer, after %s s. cached: part of the prompts' tokens.\n"+
		"busiest: answers of the busiest replica against the mean.\n", lastAnswers(all))
	if o.margin != nil {
		fmt.Fprintln(out, strings.Join(terminal.Wrap(fmt.Sprintf("Range: %s.", o.margin), 0), "\n"))
	}
}
