package terminal

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// SuggestFlag adds the most similar flag to an error about an unknown flag. It also rewrites errors about values
// that are not numbers. It is a FlagErrorFunc for a command.
func SuggestFlag(c *cobra.Command, err error) error {
	if text, kind, number := strings.Cut(err.Error(), ": strconv.Parse"); number {
		switch {
		case strings.HasPrefix(kind, "Float"):
			return fmt.Errorf("%s: want a number without a unit; %s --help has the unit", text, c.CommandPath())
		case strings.HasPrefix(kind, "Int"):
			return fmt.Errorf("%s: want a whole number", text)
		case strings.HasPrefix(kind, "Uint"):
			return fmt.Errorf("%s: want a whole number of at least 0", text)
		}
	}
	_, name, unknown := strings.Cut(err.Error(), "unknown flag: --")
	if !unknown {
		return err
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	best := Nearest(name, names)
	if best == "" {
		return err
	}
	return fmt.Errorf("%w; did you mean --%s?", err, best)
}

// Nearest returns the name that is most similar to the given name. It returns "" if all names differ by more than
// two letters.
func Nearest(name string, names []string) string {
	best, leastEdits := "", 3
	for _, other := range names {
		if d := distance(name, other); d < leastEdits {
			best, leastEdits = other, d
		}
	}
	return best
}

// distance returns how many bytes must be inserted, removed or changed to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, row[j]+1, before+1)
		}
	}
	return row[len(b)]
}
