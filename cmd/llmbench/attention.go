package main

import (
	"github.com/spf13/cobra"

	"llmmemory/internal/kvstore/speed"
)

func attentionCommand() *cobra.Command {
	var o speed.Options
	c := &cobra.Command{
		Use:   "attention",
		Short: "Measure attention over paged blocks, and the KV store",
		Long: "attention compares, by turns in one run, decoding with reading the same bytes, scattered blocks\n" +
			"with contiguous ones (the paper's Fig. 18a), 8-bit keys and values with f16, prefill and cascade\n" +
			"attention with the processor's peak, and writing, copying and swapping blocks with memcpy.\n" +
			"Figures are medians. It takes 3 GB of memory.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return speed.Print(c.OutOrStdout(), o) },
	}
	c.Flags().IntVar(&o.Rounds, "rounds", 9, "how often to measure, of which the median counts")
	c.Flags().IntVar(&o.Threads, "threads", 0, "most threads; 0: one for each processor")
	c.Flags().BoolVar(&o.CPU, "cpu-time", false, "measure processor time, with one thread, where other work keeps the processors busy")
	c.Flags().StringVar(&o.Only, "only", "", "one table: decode, quantized, compute, move or paged")
	return c
}
