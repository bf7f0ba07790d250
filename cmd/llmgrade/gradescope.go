package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"llmmemory/internal/homework/grade/reporting/gradescope"
	"llmmemory/internal/jobs"
)

// addGradescope adds the flag --gradescope, for the run in Gradescope's container, and the command that makes the
// package for Gradescope.
func addGradescope(c *cobra.Command) {
	var dir string
	c.Flags().StringVar(&dir, "gradescope", "", "grade inside Gradescope's container, whose folder is `DIR`")
	c.Flags().Lookup("gradescope").NoOptDefVal = gradescope.Root
	args, run := c.Args, c.RunE
	c.Args = func(c *cobra.Command, names []string) error {
		if dir == "" {
			return args(c, names)
		}
		if len(names) > 0 {
			return fmt.Errorf("--gradescope grades what is in its folder, not %q; the folder is given as --gradescope=DIR", names[0])
		}
		if c.Flags().NFlag() > 1 {
			return errors.New("--gradescope goes with no other flag")
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, names []string) error {
		if dir == "" {
			return run(c, names)
		}
		return gradescope.Run(dir, c.OutOrStdout())
	}
	c.AddCommand(packageCommand())
}

func packageCommand() *cobra.Command {
	var out, points string
	var p gradescope.Package
	c := &cobra.Command{
		Use:   "gradescope --out FILE",
		Short: "Make the autograder.zip that staff upload to Gradescope",
		Long: "gradescope writes a zip with this program and a script that installs gcc and\n" +
			"Valgrind. Upload it under \"Configure Autograder\"; README.txt in it explains the rest.",
		Example: "  llmgrade gradescope --out autograder.zip\n" +
			"  llmgrade gradescope --out autograder.zip --points points.json --rate-limit 10/24h",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if points != "" {
				text, err := os.ReadFile(points)
				if err != nil {
					return err
				}
				if p.Points = text; len(text) == 0 {
					return fmt.Errorf("%s is empty", points)
				}
			}
			if err := packUp(out, p); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "wrote %s: upload it unchanged\n", out)
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&out, "out", "", "write the package to this `FILE`")
	f.StringVar(&points, "points", "", "points of the tasks, from this `FILE` (default: the points.json of the package)")
	f.StringVar(&p.Limit, "rate-limit", "", "grade at most N submissions of one student within a time: `N/TIME`, as in 10/24h")
	_ = c.MarkFlagRequired("out")
	return c
}

// packUp writes the package, or leaves the file as it was.
func packUp(out string, p gradescope.Package) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if p.Binary, err = os.ReadFile(self); err != nil {
		return err
	}
	var bytes bytes.Buffer
	if err := p.Write(&bytes); err != nil {
		return err
	}
	return jobs.Replace(out, bytes.Bytes())
}
