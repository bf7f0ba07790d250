package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"llmmemory/internal/simulation/chart"
	"llmmemory/internal/simulation/experiment"
	"llmmemory/internal/simulation/runs"
	"llmmemory/internal/terminal"
)

// figuresOptions are the flags of llmsim figures.
type figuresOptions struct {
	experiment.Options
	dir   string
	check bool
}

func figuresCommand() *cobra.Command {
	var o figuresOptions
	c := &cobra.Command{
		Use:   "figures",
		Short: "Repeat the PagedAttention paper's experiments",
		Long: "figures runs the experiments of the paper (SOSP '23), mostly for OPT-13B, and draws the results\n" +
			"beside its values: an SVG, a PNG and a CSV of each figure, and a page with all of them. With --check\n" +
			"it prints each comparison, and the exit status is 1 if one is outside its tolerance. With -o every\n" +
			"finished run is kept in the folder; after an interruption, the same command resumes.\n\n" +
			strings.Join(terminal.Wrap("Figures: "+strings.Join(experiment.Names(), ", ")+".", 0), "\n"),
		Example: "  llmsim figures -o figures\n" +
			"  llmsim figures --check\n" +
			"  llmsim figures -o figures --only fig13,fig15 --seeds 20\n" +
			"  llmsim figures -o figures --full          # OPT-66B, OPT-175B, LLaMA-13B, V0 and V1, too",
		Args: onlyFlags,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVarP(&o.dir, "out", "o", "", "folder for the figures and index.html")
	f.BoolVar(&o.check, "check", false, "print the comparison with the paper; exit status 1 if a number misses")
	f.StringSliceVar(&o.Only, "only", nil, "names of figures (default: all)")
	f.BoolVar(&o.Full, "full", false, "also draw latency of OPT-66B, OPT-175B and LLaMA-13B, and of vLLM V0 and V1")
	f.BoolVar(&o.Quick, "quick", false, "fewer seeds and shorter runs")
	f.IntVar(&o.Seeds, "seeds", 0, "seeds of averages, from 1 (default 8)")
	f.IntVar(&o.Jobs, "jobs", 0, "concurrent runs (default: one for each processor)")
	return c
}

// figuresMemory is the soft limit of Go's memory, in bytes. Concurrent searches allocate much that is soon
// garbage; without the limit, the heap would grow to a multiple of what is in use.
const figuresMemory = 800 << 20

// run runs the experiments, and draws or checks them.
func (o *figuresOptions) run(c *cobra.Command) (err error) {
	switch {
	case o.dir == "" && !o.check:
		return fmt.Errorf("nothing to do: give a folder for the figures (-o), or --check, or both")
	case o.Seeds < 0 || o.Jobs < 0:
		return fmt.Errorf("--seeds %d, --jobs %d: want at least 1", o.Seeds, o.Jobs)
	}
	if o.dir != "" {
		if o.Runs, err = runs.Open(o.dir, ""); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, o.Runs.Close()) }()
	}
	progress := terminal.NewProgress("figures")
	o.Progress = progress.Show
	debug.SetMemoryLimit(figuresMemory)
	report, err := experiment.Run(c.Context(), o.Options)
	progress.Clear()
	if errors.Is(err, context.Canceled) && o.dir != "" {
		return fmt.Errorf("interrupted; finished runs are kept in %s: the same command resumes", o.dir)
	}
	if err != nil {
		return err
	}
	if o.dir != "" {
		if err := chart.Write(o.dir, report.Figures, report.Checks...); err != nil {
			return err
		}
		fmt.Fprintf(c.OutOrStdout(), "%d figures in %s, see index.html\n", len(report.Figures), o.dir)
	}
	if !o.check {
		return nil
	}
	if err := chart.WriteTable(c.OutOrStdout(), report.Checks); err != nil {
		return err
	}
	if n := report.Misses(); n > 0 {
		return fmt.Errorf("%d of %d comparisons miss", n, len(report.Checks))
	}
	return nil
}
