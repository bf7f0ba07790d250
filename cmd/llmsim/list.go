package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"llmmemory/internal/sim"
	"llmmemory/internal/sim/cost"
	"llmmemory/internal/sim/scenario"
	"llmmemory/internal/sim/workload"
	"llmmemory/internal/terminal"
)

func listCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List systems, workloads, setups, models, GPUs and engines",
		Args:  onlyFlags,
		RunE: func(c *cobra.Command, _ []string) error {
			var systems, workloads, setups [][2]string
			for _, name := range sim.Systems() {
				system, err := sim.Lookup(name)
				if err != nil {
					return err
				}
				systems = append(systems, [2]string{name, system.About})
			}
			for _, name := range workload.Names() {
				_, info, err := workload.Named(name)
				if err != nil {
					return err
				}
				workloads = append(workloads, [2]string{name, fmt.Sprintf("%s; %s", info.Trust, info.Description)})
			}
			for _, name := range cost.Setups() {
				s, err := cost.Open(name)
				if err != nil {
					return err
				}
				m, err := s.Model(16)
				if err != nil {
					return err
				}
				setups = append(setups, [2]string{name, m.Describe() + ", " + m.Constants()})
			}
			w := c.OutOrStdout()
			if asJSON {
				e := json.NewEncoder(w)
				e.SetIndent("", "\t")
				return e.Encode(map[string][]string{
					"systems": sim.Systems(), "workloads": workload.Names(), "setups": cost.Setups(),
					"models": cost.LLMs(), "gpus": cost.GPUs(), "engines": scenario.Engines(),
				})
			}
			writeList(w, "systems", systems)
			writeList(w, "workloads", workloads)
			writeList(w, "setups, with the time of an iteration in ms", setups)
			writeList(w, "models, for --model", [][2]string{{strings.Join(cost.LLMs(), ", ")}})
			writeList(w, "GPUs, for --gpu", [][2]string{{strings.Join(cost.GPUs(), ", ")}})
			engines, err := listEngines()
			if err != nil {
				return err
			}
			writeList(w, "engines, for --engine: the newest release with constants for the GPU, or one, as in vllm-0.7.3",
				engines)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the names as JSON")
	return c
}

// listEngines returns the releases of engines, with the GPUs on which something of them is published.
func listEngines() (rows [][2]string, err error) {
	for _, engine := range cost.Engines() {
		releases, err := cost.Releases(engine, "")
		if err != nil {
			return nil, err
		}
		for _, release := range releases {
			gpus, err := cost.EngineGPUs(engine, release)
			if err != nil {
				return nil, err
			}
			text := strings.Join(gpus, ", ")
			others, err := cost.ElsewhereGPUs(engine, release)
			if err != nil {
				return nil, err
			}
			if len(others) > 0 {
				text += "; with the constants of these, without data: " + strings.Join(others, ", ")
			}
			rows = append(rows, [2]string{engine + "-" + release, text})
		}
	}
	return append(rows, [2]string{scenario.DataSheet,
		"any GPU: constants chosen by hand for vLLM of 2023, without data. " +
			"The default is vllm's newest release with constants for the GPU, and this where there is none"}), nil
}

// writeList writes names with what they are.
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
