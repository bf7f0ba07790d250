package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"llmmemory/internal/terminal"
)

// removed says what takes the place of commands and flags that llmsim had. A flag stands behind its command.
var removed = map[string]string{
	"cheapest":       "run llmsim plan for each --gpu, and divide what a server costs by the rate that it holds",
	"plan --prices":  withoutMoney,
	"fleet --prices": withoutMoney,
	"sweep --shard":  "run llmsim run --json in each task of a job array; cmd/llmsim/README.md shows how",
}

const withoutMoney = "llmsim computes rates and latencies, not money: divide what a server costs by the rate"

// addRemoved adds a hidden command for each that was removed, which says what takes its place.
func addRemoved(c *cobra.Command) {
	for _, name := range []string{"cheapest"} {
		c.AddCommand(&cobra.Command{
			Use: name, Hidden: true, DisableFlagParsing: true,
			RunE: func(*cobra.Command, []string) error { return fmt.Errorf("%s was removed: %s", name, removed[name]) },
		})
	}
}

// flagError says what takes the place of a flag that was removed, or which flag was meant.
func flagError(c *cobra.Command, err error) error {
	_, flag, unknown := strings.Cut(err.Error(), "unknown flag: --")
	flag, _, _ = strings.Cut(flag, "=")
	if instead := removed[c.Name()+" --"+flag]; unknown && instead != "" {
		return fmt.Errorf("--%s was removed: %s", flag, instead)
	}
	return terminal.SuggestFlag(c, err)
}
