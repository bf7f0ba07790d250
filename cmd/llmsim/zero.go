package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
)

// defaultedFlags are those for whose default a zero stands inside a scenario. Where it is given, a zero
// is no wish that can be met.
var defaultedFlags = []string{
	"rate", "duration", "burstiness", "workers", "stages", "samples",
	"blocks", "cpu-blocks", "max-tokens", "max-seqs", "max-len", "batch", "swap-gb-s", "watermark", "memory-utilization",
	"steps", "input-len", "output-len",
}

// refuseZeros refuses a zero where more is needed, instead of taking the default for it, and numbers of
// things below that.
func refuseZeros(c *cobra.Command, _ []string) error {
	for _, name := range defaultedFlags {
		f := c.Flags().Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		text := f.Value.String()
		v, err := strconv.ParseFloat(text, 64)
		if err == nil && v < 0 && f.Value.Type() == "int" {
			return fmt.Errorf("--%s %s: want at least 1", name, text)
		}
		if err == nil && v == 0 {
			if name == "watermark" {
				return fmt.Errorf("--watermark 0: want more than 0, or -1 for none")
			}
			return fmt.Errorf("--%s 0: want more than 0, or leave the flag out for its default", name)
		}
	}
	return nil
}
