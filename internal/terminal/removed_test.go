package terminal

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestRemovedCommandsAndFlagsSayWhatTakesTheirPlace(t *testing.T) {
	for _, c := range []struct{ name, args, wantErr string }{
		{"a command", "fly --high 3", "fly was removed: walk"},
		{"a flag of a command", "run --fast", "--fast was removed: run is fast"},
		{"a flag with a value", "run --fast=3", "--fast was removed: run is fast"},
		{"a flag of the program", "--loud", "--loud was removed: listen"},
		{"a flag of another command", "walk --fast", "unknown flag: --fast"},
		{"a flag with a typing error", "run --slwo", "did you mean --slow?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := &cobra.Command{Use: "program FILE", RunE: func(*cobra.Command, []string) error { return nil }, SilenceErrors: true, SilenceUsage: true}
			for _, name := range []string{"run", "walk"} {
				sub := &cobra.Command{Use: name, RunE: func(*cobra.Command, []string) error { return nil }}
				sub.Flags().Bool("slow", false, "")
				root.AddCommand(sub)
			}
			Program(root)
			Removed{"fly": "walk", "run --fast": "run is fast", "program --loud": "listen"}.Explain(root)
			root.SetOut(io.Discard)
			root.SetArgs(strings.Fields(c.args))
			require.ErrorContains(t, root.Execute(), c.wantErr)
			require.NotContains(t, names(root), "fly", "it is hidden")
		})
	}
}
