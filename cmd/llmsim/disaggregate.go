package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"llmmemory/internal/sim/capacity"
	"llmmemory/internal/sim/disagg"
	"llmmemory/internal/sim/scenario"
)

// disaggregateOptions are the flags of llmsim disaggregate.
type disaggregateOptions struct {
	q      disagg.Question
	slo    string
	asJSON bool
}

func disaggregateCommand() *cobra.Command {
	o := disaggregateOptions{q: disagg.Question{Scenario: scenario.Scenario{Seed: 1}}}
	c := &cobra.Command{
		Use:   "disaggregate --model M --gpu G --servers N",
		Short: "Find how many of N servers should only prefill, and how many only decode",
		Long: "disaggregate finds, for each division of N servers into those that compute prompts and those that\n" +
			"decode, the highest rate that holds an objective (see llmsim plan --help), and compares N servers\n" +
			"that do both. Keys and values of a prompt are sent over a link out of each prefill server, one\n" +
			"request after the other. Requests are given to servers in turn. As in a plan, a rate at which the\n" +
			"queue grows does not hold. But the rates are from runs of a few minutes with one seed: other seeds\n" +
			"differ by a few percent, and no rate is confirmed for an hour. Times are from the cost model; none\n" +
			"was measured.",
		Example: "  llmsim disaggregate --model llama-3-8b --gpu h100-80gb --slo 'ttft<300ms@p99,tpot<30ms@p99'\n" +
			"  llmsim disaggregate --model llama-3-8b --gpu l4 --servers 8 --link-gb-s 1.25 --slo 'ttft<2s@p90'",
		Args: onlyFlags,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&o.slo, "slo", "ttft<1s@p99,tpot<50ms@p99", "objectives: see llmsim plan --help")
	f.IntVar(&o.q.Servers, "servers", 4, "number of servers")
	f.Float64Var(&o.q.Link, "link-gb-s", 50, "GB/s out of each prefill server: 50 is a network card of 400 Gbit/s")
	f.Float64Var(&o.q.Latency, "link-seconds", 0.001, "seconds that each transfer takes in addition")
	f.Float64Var(&o.q.Seconds, "seconds", 300, "seconds of arrivals in each run, at least; 30 times as long as an answer takes without load if that is more")
	f.StringVar(&o.q.Scenario.Workload, "workload", "", "requests: a name of llmsim list (default sharegpt)")
	f.Float64Var(&o.q.Scenario.Burstiness, "burstiness", 0, "shape of the gamma distribution of gaps between requests (default 1, Poisson)")
	f.Uint64Var(&o.q.Scenario.Seed, "seed", 1, "seed of the random numbers")
	addModel(f, &o.q.Scenario)
	f.BoolVar(&o.asJSON, "json", false, "print the question and the ratios as JSON")
	return c
}

func (o *disaggregateOptions) run(c *cobra.Command) (err error) {
	if o.q.SLO, err = capacity.ParseSLO(o.slo); err != nil {
		return err
	}
	o.q.Pool = capacity.NewPool(runtime.GOMAXPROCS(0))
	ratios, seconds, err := disagg.Search(c.Context(), o.q)
	if err != nil {
		return err
	}
	o.q.Seconds = seconds
	if o.asJSON {
		e := json.NewEncoder(c.OutOrStdout())
		e.SetIndent("", "\t")
		err = e.Encode(struct {
			Scenario scenario.Scenario `json:"scenario"`
			SLO      string            `json:"slo"`
			Link     float64           `json:"linkGBPerSecond"`
			Latency  float64           `json:"linkSeconds"`
			Seconds  float64           `json:"seconds"`
			Ratios   []disagg.Ratio    `json:"ratios"`
		}{o.q.Scenario, o.q.SLO.String(), o.q.Link, o.q.Latency, o.q.Seconds, ratios})
	} else {
		err = o.write(c.OutOrStdout(), ratios)
	}
	if err == nil && !slices.ContainsFunc(ratios, func(r disagg.Ratio) bool { return r.Rate > 0 }) {
		err = fmt.Errorf("nothing holds %s", o.q.SLO)
	}
	return err
}

// write writes the ratios for a terminal: the answer first.
func (o *disaggregateOptions) write(out io.Writer, ratios []disagg.Ratio) error {
	best, most := disagg.Best(ratios)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	switch {
	case best.Rate == 0:
		fmt.Fprintf(w, "no division of %d servers holds %s\n\n", o.q.Servers, o.q.SLO)
	case best.Prefill == 0:
		fmt.Fprintf(w, "all %d servers should do both: %.3g requests/s under %s", o.q.Servers, best.Rate, o.q.SLO)
		if most.Rate > best.Rate {
			fmt.Fprintf(w, "; with %d to prefill they sustain %.3g,\nwhich is within the difference between seeds", most.Prefill, most.Rate)
		}
		fmt.Fprint(w, "\n\n")
	default:
		fmt.Fprintf(w, "%d of %d servers should prefill and %d decode: %.3g requests/s under %s", best.Prefill, o.q.Servers, best.Decode, best.Rate, o.q.SLO)
		if ratios[0].Rate > 0 {
			fmt.Fprintf(w, "; doing both they sustain %.3g", ratios[0].Rate)
		}
		fmt.Fprint(w, "\n\n")
	}
	fmt.Fprint(w, "prefill\tdecode\trequests/s")
	for _, objective := range o.q.SLO {
		fmt.Fprintf(w, "\t%s", objective.Of())
	}
	fmt.Fprint(w, "\ttransfer\tpreempted\n")
	for _, r := range ratios {
		if r.Prefill == 0 {
			fmt.Fprintf(w, "all do both\t\t%.3g", r.Rate)
		} else {
			fmt.Fprintf(w, "%d\t%d\t%.3g", r.Prefill, r.Decode, r.Rate)
		}
		for i := range o.q.SLO {
			if r.Rate == 0 {
				fmt.Fprint(w, "\t-")
				continue
			}
			fmt.Fprintf(w, "\t%.3g ms", 1000*r.Values[i])
		}
		fmt.Fprintf(w, "\t%.3g ms\t%d\n", 1000*r.Sent, r.Recomputed)
	}
	fmt.Fprintf(w, "\nRuns of %g s of arrivals with seed %d: others differ by some percent.\nThe cost model's times, compared with no measurement of such servers.\n", o.q.Seconds, o.q.Scenario.Seed)
	return w.Flush()
}
