package main

import (
	"errors"
	"runtime"

	"github.com/spf13/cobra"

	"llmmemory/internal/terminal"
)

// options are the values of the flags.
type options struct {
	json      bool
	html      string
	points    string
	gate      string
	seed      uint64
	jobs      int
	shard     string
	only      string
	allStages bool
	replay    string
	trace     string
	main      string
}

func command(status *int) *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "llmgrade FILE|DIR...",
		Short: "Grade llm_memory.c",
		Long: "llmgrade compiles each llm_memory.c with the flags of the course, runs it in a sandbox,\n" +
			"and compares its memory after every call with what the handout asks for.\n\n" +
			"DIR is a class: it holds a .c file or a folder for each student. An entry that cannot be\n" +
			"graded gets a row that says why.\n\n" +
			"The exit status is 0 for full marks, 1 for less, 2 if something could not be graded.",
		Example: "  llmgrade llm_memory.c\n" +
			"  llmgrade --only task4 llm_memory.c\n" +
			"  llmgrade --trace first.trace llm_memory.c   # the calls that show the first finding\n" +
			"  llmgrade --replay first.trace llm_memory.c  # play it, and nothing else\n" +
			"  llmgrade --main first.c llm_memory.c        # the first finding as a C program\n" +
			"  llmgrade --json class/ >class.jsonl\n" +
			"  llmgrade --html grades class/               # pages and grades.csv; run again to resume\n" +
			"  llmgrade --html part3 --shard 3/8 class/    # the third of eight machines\n" +
			"  llmgrade merge --html grades part*          # then all parts together",
		Args: func(_ *cobra.Command, names []string) error {
			if len(names) == 0 {
				return errors.New("which submission? Name a file, as in llmgrade llm_memory.c, or the folder of a class")
			}
			return nil
		},
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(c *cobra.Command, args []string) error { return o.run(c, args, status) },
	}
	terminal.Program(c)
	removed.Explain(c)
	f := c.Flags()
	f.BoolVar(&o.json, "json", false, "print one line of JSON for each submission")
	f.StringVar(&o.html, "html", "", "write pages and grades.csv to this `FOLDER`, or resume what is there")
	f.StringVar(&o.points, "points", "", "points of the tasks, from this `FILE` (llmgrade points prints one)")
	f.StringVar(&o.gate, "gate", "", "rules of the gate, from this `FILE` (llmgrade gate prints one)")
	f.Uint64Var(&o.seed, "seed", 0, "seed of the random traces (default: from the submission's text)")
	f.IntVar(&o.jobs, "jobs", runtime.NumCPU(), "submissions graded at the same time")
	f.StringVar(&o.shard, "shard", "", "grade only the i-th of n parts of the submissions: `i/n`, i from 1")
	f.StringVar(&o.only, "only", "", "play only the traces whose name contains this `TEXT`")
	f.BoolVar(&o.allStages, "all-stages", false, "run every stage for every task, even if an earlier stage has failed")
	f.StringVar(&o.replay, "replay", "", "play only the trace in this `FILE`; gives no points")
	f.StringVar(&o.trace, "trace", "", "write the trace of the first finding to this `FILE`")
	f.StringVar(&o.main, "main", "", "write a C program that shows the first finding to this `FILE`")
	c.MarkFlagsMutuallyExclusive("only", "replay")
	c.MarkFlagsMutuallyExclusive("html", "replay")
	c.AddCommand(mergeCommand(), studentCommand(), pointsCommand(), gateCommand())
	addGradescope(c)
	return c
}
