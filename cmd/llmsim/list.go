package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"llmmemory/internal/sim"
	"llmmemory/internal/sim/cost"
	"llmmemory/internal/sim/workload"
)

func listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "What there is: systems, workloads, setups, models, GPUs",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "systems")
			for _, name := range sim.Systems() {
				fmt.Fprintf(w, "  %s\t%s\n", name, sim.About(name))
			}
			fmt.Fprintln(w, "workloads")
			for _, name := range workload.Names() {
				_, info, err := workload.Named(name)
				if err != nil {
					return err
				}
				fmt.Fprintf(w, "  %s\t%s; %s\n", name, info.Trust, info.Description)
			}
			fmt.Fprintln(w, "setups")
			for _, name := range cost.Setups() {
				s, err := cost.Open(name)
				if err != nil {
					return err
				}
				m, err := s.Model(16)
				if err != nil {
					return err
				}
				fmt.Fprintf(w, "  %s\t%s\n", name, m.Describe())
			}
			fmt.Fprintf(w, "models\n  %s\n", strings.Join(cost.LLMs(), ", "))
			fmt.Fprintf(w, "GPUs\n  %s\n", strings.Join(cost.GPUs(), ", "))
			return w.Flush()
		},
	}
}
