package terminal

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Removed maps removed commands ("command") and flags ("command --flag") to texts that say what to use instead.
type Removed map[string]string

// Explain makes removed commands and flags fail with an error that says what to use instead. Call it after
// Program.
func (r Removed) Explain(program *cobra.Command) {
	for name, instead := range r {
		if strings.Contains(name, " ") {
			continue
		}
		program.AddCommand(&cobra.Command{
			Use: name, Hidden: true, DisableFlagParsing: true,
			RunE: func(*cobra.Command, []string) error { return fmt.Errorf("%s was removed: %s", name, instead) },
		})
	}
	program.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		_, flag, unknown := strings.Cut(err.Error(), "unknown flag: --")
		flag, _, _ = strings.Cut(flag, "=")
		if instead := r[c.Name()+" --"+flag]; unknown && instead != "" {
			return fmt.Errorf("--%s was removed: %s", flag, instead)
		}
		return SuggestFlag(c, err)
	})
}
