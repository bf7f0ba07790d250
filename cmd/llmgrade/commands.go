package main

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"llmmemory/internal/homework/grade"
	"llmmemory/internal/homework/grade/isolation/build"
	"llmmemory/internal/homework/grade/reporting/reproduce"
	"llmmemory/internal/terminal"
)

func mergeCommand() *cobra.Command {
	var html string
	c := &cobra.Command{
		Use:     "merge --html OUT DIR...",
		Short:   "Merge the folders of several machines",
		Long:    "merge takes the reports from folders that llmgrade --html has written, on one machine or several,\nand writes the pages and grades.csv of all of them.",
		Example: "  llmgrade merge --html grades part1 part2 part3",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			p, err := newPages(html)
			if err != nil {
				return err
			}
			if p.rows, err = p.Merge(args); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%d submissions: %s\n", len(p.rows), terminal.Visible(p.index()))
			missing := p.MissingShards()
			for _, s := range missing {
				fmt.Fprintf(c.ErrOrStderr(), "warning: no folder has shard %v: its submissions are missing\n", s)
			}
			if unknown, err := p.overrides.Apply(p.rows); err != nil || len(missing) == 0 && unknown != nil {
				return cmp.Or(err, unknown.Unknown())
			}
			return p.report(c.ErrOrStderr())
		},
	}
	c.Flags().StringVar(&html, "html", "", "write to this `FOLDER`")
	_ = c.MarkFlagRequired("html")
	return c
}

func pointsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "points",
		Short:   "Print a points file to edit",
		Long:    "points prints how many points each task has, and how many percent of them its directed traces, the\nhidden traces and the memory checks give. Edit what is printed and pass it with --points.",
		Example: "  llmgrade points >points.json\n  llmgrade --points points.json llm_memory.c",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			text, err := json.MarshalIndent(grade.DefaultPoints, "", "  ")
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s\n", text)
			return err
		},
	}
}

func gateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "gate",
		Short: "Print the rules of the gate as a file to edit",
		Long: "gate prints every rule that a file has to pass before it is run, what happens to a file that\n" +
			"breaks it, and why. \"refuse\" scores 0, \"advise\" is reported and costs nothing, \"ignore\" is\n" +
			"not reported. To change this, edit what is printed and pass it with --gate.",
		Example: "  llmgrade gate >gate.txt\n  llmgrade --gate gate.txt class/",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(c.OutOrStdout(), build.Gate{})
			return err
		},
	}
}

func studentCommand() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:   "student --out FOLDER",
		Short: "Make the folder of tests that staff hand out",
		Long: "student writes the traces that students may see, as lists of calls and as C programs that check\n" +
			"themselves, with llm_memory.h, a Makefile and a README. Nothing of the hidden traces is in it.",
		Example: "  llmgrade student --out tests",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			traces, programs, err := reproduce.WriteFolder(out)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%d traces and %d programs: %s\n", traces, programs, terminal.Visible(out))
			return err
		},
	}
	c.Flags().StringVar(&out, "out", "", "write to this `FOLDER`, which must be empty or not exist")
	_ = c.MarkFlagRequired("out")
	return c
}
