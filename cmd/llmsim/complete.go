package main

import (
	"github.com/spf13/cobra"

	"llmmemory/internal/simulation/cost"
	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
	"llmmemory/internal/simulation/workload"
)

// completeNames makes the shell complete the names for flags of a command. If no name matches, it offers files.
func completeNames(c *cobra.Command) {
	for _, flag := range []struct {
		name   string
		values func() []string
	}{
		{"model", cost.LLMs}, {"gpu", cost.GPUs}, {"engine", scenario.Engines},
		{"setup", cost.Setups}, {"workload", workload.Names}, {"system", sim.Systems},
	} {
		if c.Flags().Lookup(flag.name) != nil {
			_ = c.RegisterFlagCompletionFunc(flag.name, func(*cobra.Command, []string, string) ([]string,
				cobra.ShellCompDirective) {
				return flag.values(), cobra.ShellCompDirectiveDefault
			}) // fails only for a flag that does not exist or is registered already
		}
	}
}
