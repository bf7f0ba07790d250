package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"llmmemory/internal/simulation/cost"
	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
	"llmmemory/internal/simulation/workload"
	"llmmemory/internal/terminal"
)

func listCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List systems, workloads, setups, models, GPUs and engines",
		Args:  onlyFlags,
		RunE: func(c *cobra.Command, _ []string) error {
			w := c.OutOrStdout()
			if asJSON {
				return writeJSON(w, map[string][]string{
					"systems": sim.Systems(), "workloads": workload.Names(), "setups": cost.Setups(),
					"models": cost.LLMs(), "gpus": cost.GPUs(), "engines": scenario.Engines(),
				})
			}
			for _, l := range []struct {
				title string
				names []string
				about func(name string) (string, error)
			}{
				{"systems", sim.Systems(), aboutSystem},
				{"workloads", workload.Names(), aboutWorkload},
				{"setups, with the time of an iteration in ms", cost.Setups(), aboutSetup},
			} {
				var rows [][2]string
				for _, name := range l.names {
					about, err := l.about(name)
					if err != nil {
						return err
					}
					rows = append(rows, [2]string{name, about})
				}
				writeList(w, l.title, rows)
			}
			writeList(w, "models, for --model", [][2]string{{strings.Join(cost.LLMs(), ", ")}})
			writeList(w, "GPUs, for --gpu", [][2]string{{strings.Join(cost.GPUs(), ", ")}})
			writeList(w, "engines, for --engine", listEngines())
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the names as JSON")
	return c
}

func aboutSystem(name string) (string, error) {
	system, err := sim.Lookup(name)
	if err != nil {
		return "", err
	}
	return system.About, nil
}

func aboutWorkload(name string) (string, error) {
	_, info, err := workload.Named(name)
	return fmt.Sprintf("%s; %s", info.Trust, info.Description), err
}

func aboutSetup(name string) (string, error) {
	s, err := cost.Open(name)
	if err != nil {
		return "", err
	}
	m, err := s.Model(16)
	if err != nil {
		return "", err
	}
	return m.Describe() + ", " + m.Constants(), nil
}

func listEngines() [][2]string {
	return [][2]string{
		{cost.VLLM, "V1 (0.10 to 0.20), as measured on " + strings.Join(cost.MeasuredGPUs(), ", ") +
			"; with the constants of these, without data: " + strings.Join(cost.OtherGPUs(), ", ") + ". The default on these GPUs"},
		{scenario.DataSheet, "any GPU: constants chosen by hand for vLLM of 2023, without data. The default on other GPUs"},
	}
}

func writeList(w io.Writer, title string, rows [][2]string) {
	fmt.Fprintln(w, title)
	width := 0
	for _, r := range rows {
		if r[1] != "" {
			width = max(width, len(r[0])+2)
		}
	}
	for _, r := range rows {
		name, text := r[0], r[1]
		if text == "" {
			name, text = "", name
		}
		for _, line := range terminal.Wrap(text, 2+width) {
			fmt.Fprintf(w, "  %-*s%s\n", width, name, line)
			name = ""
		}
	}
}
