// Command llmbench replays recordings of vLLM on the serving core, and measures
// the core.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"llmmemory/internal/replay"
	"llmmemory/internal/terminal"
)

func main() {
	c := command()
	terminal.RefuseUnknownNames(c)
	if err := c.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "llmbench:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	c := &cobra.Command{
		Use:           "llmbench",
		Short:         "Replay recordings of vLLM and measure the serving core",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	c.AddCommand(replayCommand(), benchCommand(), attentionCommand())
	c.CompletionOptions.DisableDefaultCmd = true
	terminal.Program(c)
	return c
}

func replayCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "replay FILE...",
		Short: "Play recordings and compare every field of every line",
		Long: "replay plays each recording (.jsonl or .jsonl.gz) and compares every field of every line.\n" +
			"At the first difference it prints the operation, the field, both values and the pool around\n" +
			"it, and goes on with the next file. Recordings of V0, of the paper's system and of Orca are\n" +
			"checked for conservation of blocks after every operation, too.\n\n" +
			"The exit status is 0 if all are equal, else 1.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, files []string) error {
			failed := 0
			for _, file := range files {
				if err := replayFile(c.OutOrStdout(), file); err != nil {
					failed++
					fmt.Fprintln(c.OutOrStdout(), err)
				}
			}
			if failed > 0 {
				return fmt.Errorf("%d of %d recordings differ", failed, len(files))
			}
			return nil
		},
	}
}

func replayFile(out io.Writer, file string) error {
	t, err := replay.Load(file)
	if err != nil {
		return err
	}
	compared, err := replay.Verify(t)
	var d *replay.Difference
	switch {
	case errors.As(err, &d):
		return err
	case err != nil:
		return fmt.Errorf("%s: %w", file, err)
	}
	rest := ""
	if lines := len(t.Ops) + 1; compared < lines {
		rest = fmt.Sprintf("; %d after the failure, which leaves vLLM in a state of its own", lines-compared)
	}
	fmt.Fprintf(out, "%-32s equal  %6d lines%s\n", t.Name, compared, rest)
	return nil
}
