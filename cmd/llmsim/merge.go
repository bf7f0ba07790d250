package main

import (
	"errors"

	"github.com/spf13/cobra"

	"llmmemory/internal/sim/sweep"
)

func mergeCommand() *cobra.Command {
	var out string
	var slo latency
	c := &cobra.Command{
		Use:   "merge DIR... -o OUT",
		Short: "Merge the shards of a sweep",
		Long: "merge takes the folders that llmsim sweep --shard has written, on one machine or several, and\n" +
			"writes what one run of the whole sweep would have written, to the byte except for the order of\n" +
			"lines in results-*.jsonl. If a job is missing, it writes nothing and says which command runs it.",
		Example: "  llmsim merge part* -o out\n" +
			"  llmsim merge shared -o shared    # shards that wrote to one folder",
		RunE: func(c *cobra.Command, dirs []string) error {
			if len(dirs) == 0 {
				return errors.New("say which folders to merge: llmsim merge part* -o out")
			}
			st, err := sweep.Merge(out, dirs)
			if err != nil {
				return err
			}
			return writeSweep(c, st, out, float64(slo))
		},
	}
	c.Flags().StringVarP(&out, "out", "o", "", "the folder to write to")
	addSLO(c.Flags(), &slo)
	_ = c.MarkFlagRequired("out")
	return c
}
