package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"llmmemory/internal/grade/build"
)

// readGate reads the file of --gate. Without it, every rule has its default.
func (o *options) readGate() (build.Gate, error) {
	if o.gate == "" {
		return nil, nil
	}
	text, err := os.ReadFile(o.gate)
	if err != nil {
		return nil, err
	}
	gate, err := build.ParseGate(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.gate, err)
	}
	return gate, nil
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
