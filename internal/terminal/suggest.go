package terminal

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// SuggestFlag names the flag that an unknown one is nearest to: it is what a command
// gives to cobra as its FlagErrorFunc.
func SuggestFlag(c *cobra.Command, err error) error {
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

// Nearest is the first of the names that differ least from one, in at most two letters; "" if there
// is none.
func Nearest(name string, names []string) string {
	best, least := "", 3
	for _, other := range names {
		if d := distance(name, other); d < least {
			best, least = other, d
		}
	}
	return best
}

// distance is how many letters have to be put in, taken out or changed.
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
