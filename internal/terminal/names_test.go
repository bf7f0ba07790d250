package terminal

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// Ensure that completion with an unknown shell, and help with an unknown command, are errors that list the known ones.
func TestCompletionAndHelpRefuseUnknownNames(t *testing.T) {
	for _, c := range []struct{ name, args, wantOut, wantErr string }{
		{"a shell", "completion bash", "# bash completion", ""},
		{"no shell", "completion", "completion [command]", ""},
		{"a shell that is not there", "completion csh", "", `no shell "csh"; shells: bash, fish, powershell, zsh`},
		{"a shell far from any", "completion elvish", "", `no shell "elvish"; shells: bash, fish, powershell, zsh`},
		{"two shells", "completion bash zsh", "", `unknown command "zsh"`},
		{"help", "help", "program [command]", ""},
		{"help for a command", "help serve", "program serve", ""},
		{"help for a command that is not there", "help sever", "", `no command "sever", did you mean serve?; commands: completion, serve`},
		{"help for a name far from any", "help zebra", "", `no command "zebra"; commands: completion, serve`},
		{"help for an argument", "help serve now", "", `program serve has no command "now"`},
		{"help for a shell", "help completion csh", "", `no command "csh"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := &cobra.Command{Use: "program", SilenceErrors: true, SilenceUsage: true}
			root.AddCommand(&cobra.Command{Use: "serve", Run: func(*cobra.Command, []string) {}})
			var out strings.Builder
			root.SetOut(&out)
			RefuseUnknownNames(root)
			root.SetArgs(strings.Fields(c.args))
			err := root.Execute()
			if c.wantErr != "" {
				require.ErrorContains(t, err, c.wantErr)
				require.Empty(t, out.String())
				return
			}
			require.NoError(t, err)
			require.Contains(t, out.String(), c.wantOut)
		})
	}
}

// Ensure that help does the same for a program with arguments.
func TestHelpForAnArgumentOfAProgramIsAnError(t *testing.T) {
	root := &cobra.Command{Use: "program FILE", Args: cobra.MinimumNArgs(1), Run: func(*cobra.Command, []string) {}, SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(&cobra.Command{Use: "serve", Run: func(*cobra.Command, []string) {}})
	RefuseUnknownNames(root)
	root.SetArgs([]string{"help", "nothing"})
	require.ErrorContains(t, root.Execute(), `no command "nothing"`)
}
