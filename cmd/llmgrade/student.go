package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"llmmemory/internal/grade/reproduce"
	"llmmemory/internal/terminal"
)

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
