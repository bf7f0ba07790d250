package terminal

import (
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// version is set by the Makefile when it links a program.
var version string

// Program gives a command --version, suggestions for misspelt flags, and help that fits a terminal.
func Program(c *cobra.Command) {
	c.Version = Version()
	c.SetFlagErrorFunc(SuggestFlag)
	cobra.AddTemplateFunc("wrapped", func(f *pflag.FlagSet) string { return f.FlagUsagesWrapped(Columns) })
	c.SetUsageTemplate(strings.NewReplacer(
		".LocalFlags.FlagUsages", "wrapped .LocalFlags", ".InheritedFlags.FlagUsages", "wrapped .InheritedFlags",
	).Replace(c.UsageTemplate()))
}

// Version returns the project's version and the commit from which the program was built. If the program was not
// built by make, Version returns what Go's build recorded.
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v, commit := info.Main.Version, ""
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			commit = s.Value
		}
	}
	if v == "" {
		v = "(devel)"
	}
	return strings.TrimSpace(v + " " + commit)
}
