package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"llmmemory/internal/simulation/capacity"
	"llmmemory/internal/simulation/runs"
	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
	"llmmemory/internal/simulation/sweep"
	"llmmemory/internal/terminal"
)

// sweepOptions are the flags of llmsim sweep.
type sweepOptions struct {
	base                         scenario.Scenario
	systems, rates, sizes, seeds string
	clients                      string
	out                          string
	concurrencies                []int // from clients, if there are no rates
	jobs                         int
	slo                          latency
}

func sweepCommand() *cobra.Command {
	var o sweepOptions
	c := &cobra.Command{
		Use:   "sweep",
		Short: "Run systems × block sizes × rates or concurrencies × seeds",
		Long: "sweep runs every combination, several at a time, and keeps each in the folder as soon as it is\n" +
			"finished. After an interruption, the same command resumes. A later sweep in the same folder reuses\n" +
			"the runs that both have in common. For many machines, run llmsim run --json on each\n" +
			"(cmd/llmsim/README.md). The exit status is 0 if no job failed, otherwise 1.",
		Example: "  llmsim sweep --max-concurrency 1,2,4,8 --model llama-3-8b --gpu l4 --input-len 1024\n" +
			"  llmsim sweep --systems sosp,orca-oracle --rates 0.5:3:0.25 --seeds 1-8 -o out\n" +
			"  llmsim sweep --systems all --rates 1,2 --block-sizes 8,16,32 --duration 3600 -o out\n" +
			"  llmsim sweep --trace BurstGPT_1.csv --requests 10000 --rates 1,2,4 --setup llama-3-8b -o out",
		Args: onlyFlags,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&o.systems, "systems", "sosp,vllm-v0,vllm-v1", "systems to simulate: some of "+strings.Join(sim.Systems(),
		", ")+"; or all")
	f.StringVar(&o.rates, "rates", "", "requests a second: 0.5,1,2 or from:to:step, with both ends")
	f.StringVar(&o.sizes, "block-sizes", "16", "tokens in a block: 16,32")
	f.StringVar(&o.seeds, "seeds", "1-3", "seeds: 1,4 or 1-8 (a trace needs one)")
	f.StringVarP(&o.out, "out", "o", "", "folder for the results and finished runs")
	f.IntVar(&o.jobs, "jobs", 0, "concurrent runs (default: one for each processor)")
	addSLO(f, &o.slo)
	addArrivals(f, &o.base)
	f.StringVar(&o.clients, "max-concurrency", "", maxConcurrency+"; several, 1,2,4, without --rates: a table of "+
		"throughput and latencies of closed loops")
	addSessions(f, &o.base)
	addModel(f, &o.base)
	addDecoding(f, &o.base.Decoding)
	addMemory(f, &o.base.Server)
	addWindow(f, &o.base)
	return c
}

func addSLO(f *pflag.FlagSet, slo *latency) {
	*slo = sweep.DefaultSLO
	f.Var(slo, "slo", "highest mean normalized latency of a sustained rate")
}

// A latency is a flag for a mean normalized latency in s/token. Its value is a number, or an objective as in
// llmsim plan.
type latency float64

func (l *latency) String() string { return fmt.Sprintf("%gs/token", float64(*l)) }

func (l *latency) Type() string { return "latency" }

func (l *latency) Set(text string) error {
	if v, err := strconv.ParseFloat(text, 64); err == nil {
		text = fmt.Sprintf("%gs/token", v)
	}
	slo, err := capacity.ParseSLO(text)
	if err != nil || len(slo) > 1 || slo[0].Metric != capacity.Normalized || slo[0].Level != 0 {
		return errors.New("want a mean normalized latency above 0: 0.5s/token, 50ms/token, or 0.5")
	}
	*l = latency(slo[0].Limit)
	return nil
}

func (o *sweepOptions) run(c *cobra.Command) (err error) {
	if o.jobs < 0 {
		return fmt.Errorf("--jobs: %d runs at a time: want at least 1", o.jobs)
	}
	if err := o.readLoads(c); err != nil {
		return err
	}
	grid := sweep.Grid{Base: o.base, Systems: sweep.ParseSystems(o.systems), Concurrencies: o.concurrencies}
	if grid.Rates, err = sweep.ParseRates(o.rates); err != nil {
		return err
	}
	if grid.BlockSizes, err = sweep.ParseInts[int]("block sizes", o.sizes); err != nil {
		return err
	}
	if o.base.Trace != "" && !c.Flags().Changed("seeds") {
		o.seeds = "1" // a trace does not depend on the seed
	}
	if grid.Seeds, err = sweep.ParseInts[uint64]("seeds", o.seeds); err != nil {
		return err
	}
	if err := grid.Base.Check(grid.Systems...); err != nil {
		return err
	}
	s, err := sweep.Open(grid)
	if err != nil {
		return err
	}
	var store *runs.Store // nil if only the table is written
	if o.out != "" {
		if store, err = runs.Open(o.out, o.base.Trace); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, store.Close()) }()
	}
	st, err := o.runJobs(c, s, store)
	if err != nil {
		return err
	}
	if store != nil {
		if err := st.Write(o.out, float64(o.slo)); err != nil {
			return err
		}
	}
	if err := st.WriteSummary(c.OutOrStdout(), float64(o.slo)); err != nil {
		return err
	}
	if store != nil {
		fmt.Fprintf(c.ErrOrStderr(), "%s\n%d jobs: %s, %s\n", store, len(st.Jobs), filepath.Join(o.out, "sweep.csv"),
			filepath.Join(o.out, "index.html"))
	}
	return failures(st.Failed())
}

// readLoads checks --rates and --max-concurrency. A sweep needs a list for one of the two flags. A sweep over
// concurrencies needs no folder, and has other defaults: the number of requests of vllm bench serve, one seed, and
// the system vllm-v1.
func (o *sweepOptions) readLoads(c *cobra.Command) error {
	clients, err := sweep.ParseInts[int]("--max-concurrency", o.clients)
	switch {
	case err != nil:
		return err
	case o.rates != "" && len(clients) > 1:
		return errors.New("--max-concurrency: one number beside --rates, or a list without it")
	case o.rates != "":
		if clients != nil {
			o.base.MaxConcurrency = clients[0]
		}
		return o.needFolder()
	case clients == nil:
		return errors.New("a sweep needs --rates 0.5:3:0.25, or --max-concurrency 1,2,4")
	}
	o.concurrencies = clients
	changed := c.Flags().Changed
	if !changed("requests") && o.base.Trace == "" {
		o.base.Requests = 1000
	}
	if !changed("seeds") {
		o.seeds = "1"
	}
	if !changed("systems") {
		o.systems = sim.DefaultSystem
	}
	return nil
}

// needFolder returns an error if no folder is named.
func (o *sweepOptions) needFolder() error {
	if o.out == "" {
		return errors.New("-o DIR: a sweep over rates needs a folder for its results")
	}
	return nil
}

// runJobs runs the jobs. It shows the progress on a terminal; otherwise it prints a line for each job.
func (o *sweepOptions) runJobs(c *cobra.Command, s *sweep.Sweep, store *runs.Store) (*sweep.State, error) {
	done, total := 0, len(s.Jobs)
	w, show := c.ErrOrStderr(), func(int, int) {}
	if terminal.StderrIsTerminal() {
		progress := terminal.NewProgress("jobs")
		defer progress.Clear()
		w, show = io.Discard, progress.Show
	}
	st, err := s.Run(c.Context(), store, o.jobs, func(o *sweep.Outcome, ran bool) {
		done++
		show(done, total)
		switch {
		case o.Result == nil:
			fmt.Fprintf(w, "%d/%d %s: failed: %s\n", done, total, o.Job, o.Error)
		case ran:
			fmt.Fprintf(w, "%d/%d %s: %.3g s/token, %d of %d answered\n", done, total, o.Job, o.Result.Normalized.Mean,
				o.Result.Answered, o.Result.Arrived)
		}
	})
	if errors.Is(err, context.Canceled) && store != nil {
		return nil, fmt.Errorf("interrupted; finished runs are kept in %s: the same command resumes", o.out)
	}
	return st, err
}

// failures returns the joined errors of failed jobs, or nil if there are none. Failed jobs have no stored result, so
// they run again if the user repeats the command.
func failures(failed []*sweep.Outcome) error {
	var all error
	for _, o := range failed {
		all = errors.Join(all, fmt.Errorf("failed: %s: %s", o.Job, o.Error))
	}
	return all
}
