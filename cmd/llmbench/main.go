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
	var passes int
	c := &cobra.Command{
		Use:   "replay FILE...",
		Short: "Play recordings and compare every field of every line",
		Long: "replay plays each recording (.jsonl or .jsonl.gz) and compares every field of every line.\n" +
			"At the first difference it prints the operation, the field, both values and the pool around\n" +
			"it, and goes on with the next file. Equal recordings of V1 are then played again without\n" +
			"comparing, with their hashes known, and the operations per second are printed. Those of V0, of\n" +
			"the paper's system and of Orca are checked for conservation of blocks after every operation.\n\n" +
			"The exit status is 0 if all are equal, else 1.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, files []string) error {
			if passes < 1 {
				return fmt.Errorf("--passes is %d: want at least 1", passes)
			}
			failed := 0
			for _, file := range files {
				if err := replayFile(c.OutOrStdout(), file, passes); err != nil {
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
	c.Flags().IntVar(&passes, "passes", 5, "number of timed passes, of which the median is printed")
	return c
}

func replayFile(out io.Writer, file string, passes int) error {
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
	case t.V1:
		speed, err := replay.Measure(t, passes)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		fmt.Fprintf(out, "%-32s equal  %6d operations  %10.0f per second  %7d ns each\n",
			t.Name, speed.Operations, speed.PerSecond(), speed.Median.Nanoseconds()/int64(max(speed.Operations, 1)))
		return nil
	}
	rest := ""
	if lines := len(t.Ops) + 1; compared < lines {
		rest = fmt.Sprintf("; %d after the failure, which leaves vLLM in a state of its own", lines-compared)
	}
	fmt.Fprintf(out, "%-32s equal  %6d lines%s\n", t.Name, compared, rest)
	return nil
}
