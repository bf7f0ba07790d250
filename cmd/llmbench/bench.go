package main

import (
	"github.com/spf13/cobra"

	"llmmemory/internal/bench"
)

func benchCommand() *cobra.Command {
	var samples int
	c := &cobra.Command{
		Use:   "bench",
		Short: "Print the speed table of the serving core",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return bench.Print(c.OutOrStdout(), samples)
		},
	}
	c.Flags().IntVar(&samples, "samples", 7, "samples of each figure, of which the median is printed")
	return c
}
