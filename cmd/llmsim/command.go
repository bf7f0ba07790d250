package main

import (
	"encoding/json"
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

// A checkedWriter remembers the first error of a write, so that main reports a full disk.
type checkedWriter struct {
	w   io.Writer
	err error
}

func (w *checkedWriter) Write(text []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	var n int
	n, w.err = w.w.Write(text)
	return n, w.err
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "\t")
	return e.Encode(v)
}

func writeFact(w io.Writer, name, text string, column int) {
	for _, line := range terminal.Wrap(text, column) {
		fmt.Fprintf(w, "%s\t%s\n", name, line)
		name = ""
	}
}

// onlyFlags returns an error if there are arguments. If the command has flags whose values are files, the error
// names these flags.
func onlyFlags(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var files []string
	for _, name := range []string{"trace", "course"} {
		if c.Flags().Lookup(name) != nil {
			files = append(files, "--"+name+" FILE")
		}
	}
	if len(files) == 0 {
		return fmt.Errorf("%s takes flags, and no %q", c.CommandPath(), args[0])
	}
	return fmt.Errorf("%s takes flags, and no %q; a file goes with %s", c.CommandPath(), args[0],
		strings.Join(files, " or "))
}

// completeNames makes the shell complete the values of flags that take names. If no name matches, the shell
// offers files.
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
			}) // fails only if the flag does not exist or is already registered
		}
	}
}

// removed lists commands and flags that llmsim no longer has, and what to use instead.
var removed = terminal.Removed{
	"calibrate --figures": "the table that calibrate prints has the same numbers",
	"cheapest":            "run llmsim plan for each --gpu, and divide what a server costs by the rate that it holds",
	"plan --prices":       withoutMoney,
	"fleet --prices":      withoutMoney,
	"sweep":               "repeat llmsim run --json in a loop of the shell; cmd/llmsim/README.md has one",
}

const withoutMoney = "llmsim computes rates and latencies, not money: divide what a server costs by the rate"
