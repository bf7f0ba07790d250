package main

import (
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"llmmemory/internal/kvstore/speed"
)

func attentionCommand() *cobra.Command {
	var o speed.Options
	var file, machine string
	c := &cobra.Command{
		Use:   "attention",
		Short: "Measure attention over paged blocks, and the KV store",
		Long: "attention compares, by turns in one run, decoding with reading the same bytes, scattered blocks\n" +
			"with contiguous ones (the paper's Fig. 18a), 8-bit keys and values with f16, prefill and cascade\n" +
			"attention with the processor's peak, and writing, copying and swapping blocks with memcpy.\n" +
			"Figures are medians. It takes 3 GB of memory.\n\n" +
			"With --json it measures what llmsim figures draws beside the paper's figures 18a and 19, and\n" +
			"writes it to a file; --machine describes the machine.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if file != "" {
				return measureAttention(file, machine, o)
			}
			return speed.Print(c.OutOrStdout(), o)
		},
	}
	c.Flags().IntVar(&o.Rounds, "rounds", 9, "number of measurements, of which the median is printed")
	c.Flags().IntVar(&o.Threads, "threads", 0, "largest number of threads; 0: one for each processor")
	c.Flags().BoolVar(&o.CPU, "cpu-time", false,
		"measure processor time of one thread, for machines that are busy with other work")
	c.Flags().StringVar(&o.Only, "only", "", "print only one table: decode, quantized, compute, move or paged")
	c.Flags().StringVar(&file, "json", "", "`file` to write the measurements for llmsim figures to")
	c.Flags().StringVar(&machine, "machine", "", "description of the processor and memory, for --json")
	return c
}

// measureAttention writes what llmsim figures draws.
func measureAttention(file, machine string, o speed.Options) error {
	if machine == "" {
		return errors.New("--json needs --machine, which says what was measured on")
	}
	f, err := speed.Measure(o)
	if err != nil {
		return err
	}
	f.Machine, f.Date = machine, time.Now().UTC().Format(time.DateOnly)
	text, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
