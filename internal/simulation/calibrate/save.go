package calibrate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"llmmemory/internal/jobs"
	"llmmemory/internal/simulation/cost"
	"llmmemory/internal/terminal"
)

// Save writes the cost file. It replaces an existing file atomically.
func (c *Calibration) Save(path, name, source string) error {
	text, err := json.MarshalIndent(cost.Measured{Name: name, Source: source, LLM: c.Model, Linear: c.Linear,
		Spread: c.Spread, Fit: c.Fit}, "", "\t")
	if err != nil {
		return err
	}
	return jobs.Replace(path, append(text, '\n'))
}

// Write writes the line and its errors, and a table of the residuals, the largest first.
func (c *Calibration) Write(out io.Writer) error {
	l := c.Linear
	line := fmt.Sprintf("an iteration takes, in ms, %s + %.3g for each sequence + %.3g for each context token + %.3g "+
		"for each prompt token", milli(l.Base), l.Seq, l.Context, l.Prompt)
	lines := terminal.Wrap(line, 0)
	if s := c.Spread.String(); s != "" {
		lines = append(lines, s)
	}
	lines = append(lines, terminal.Wrap(c.Fit.String(), 0)...)
	fmt.Fprintf(out, "%s\n\n", strings.Join(lines, "\n"))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "measurement\tmeasured ms\tfitted ms\terror\tleft out\n")
	all := slices.Clone(c.Residuals)
	slices.SortStableFunc(all, func(a, b Residual) int { return cmp.Compare(b.error(), a.error()) })
	for _, r := range all {
		left := "-"
		if r.LeftOut > 0 {
			left = fmt.Sprintf("%+.1f %%", 100*(r.LeftOut/r.Measured-1))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%+.1f %%\t%s\n", r.Label, milli(r.Measured), milli(r.Fitted),
			100*(r.Fitted/r.Measured-1), left)
	}
	return w.Flush()
}

// milli formats milliseconds with four digits, or as a whole number if it is large.
func milli(v float64) string {
	if v >= 1e4 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.4g", v)
}

func (r Residual) error() float64 { return max(r.Fitted/r.Measured, r.Measured/r.Fitted) }
