package terminal

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// RefuseUnknownNames makes the commands completion and help fail for an unknown name; without it, they print help
// and succeed. Call it after SetOut, because the completion command keeps the output that is set when it is
// created.
func RefuseUnknownNames(c *cobra.Command) {
	c.InitDefaultHelpCmd()
	c.InitDefaultCompletionCmd()
	for _, sub := range c.Commands() {
		switch sub.Name() {
		case "completion":
			shells := names(sub)
			sub.Args, sub.RunE = cobra.ArbitraryArgs, func(c *cobra.Command, args []string) error {
				if len(args) == 0 {
					return c.Help()
				}
				return fmt.Errorf("completion: no shell %q; shells: %s", args[0], strings.Join(shells, ", "))
			}
		case "help":
			sub.RunE = help
		}
	}
}

func help(c *cobra.Command, args []string) error {
	root := c.Root()
	about, rest, err := root.Find(args)
	if err == nil && len(rest) == 0 {
		about.InitDefaultHelpFlag()
		about.InitDefaultVersionFlag()
		return about.Help()
	}
	if about == nil || err != nil {
		about, rest = root, args
	}
	commands := names(about)
	if len(commands) == 0 {
		return fmt.Errorf("help: %s has no command %q", about.CommandPath(), rest[0])
	}
	meant := ""
	if best := Nearest(rest[0], commands); best != "" {
		meant = ", did you mean " + best + "?"
	}
	return fmt.Errorf("help: no command %q%s; commands: %s", rest[0], meant, strings.Join(commands, ", "))
}

// names returns the names of the subcommands that help lists.
func names(c *cobra.Command) []string {
	var all []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			all = append(all, sub.Name())
		}
	}
	return all
}
