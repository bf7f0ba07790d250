package chart

import (
	"cmp"
	"fmt"
	"io"
	"strings"
)

// A Check compares one of our values with the paper's. The texts include units; a text that does not apply is empty.
type Check struct {
	Item       string // "Fig. 13, ShareGPT, vLLM"
	Paper      string
	Ours       string
	Difference string
	Tolerance  string
	OK         bool
	Kind       Kind
	Reference  string // source of the value in Paper if it is not the paper, such as "measured"
}

// Result returns "MISS" if c.OK is false. If c.OK is true, the result depends on c.Kind. It is "known" for KnownMiss,
// whose value differs from the paper's as expected. It is "after" for Explained, because the inputs of such a
// check were chosen after a first comparison with the paper. For all other kinds it is "ok".
func (c Check) Result() string {
	switch {
	case !c.OK:
		return "MISS"
	case c.Kind == KnownMiss:
		return "known"
	case c.Kind == Explained:
		return "after"
	}
	return "ok"
}

// WriteTable writes two lines for each check, followed by a line for each kind with the number of checks
// within their tolerance.
func WriteTable(w io.Writer, checks []Check) error {
	var b strings.Builder
	for _, c := range checks {
		fmt.Fprintf(&b, "%-5s  %s (%s)\n", c.Result(), c.Item, c.Kind)
		tolerance := "tolerance"
		if c.Kind == KnownMiss { // Tolerance has the cause
			tolerance = "cause:"
		}
		var texts []string
		for _, s := range [][2]string{{cmp.Or(c.Reference, "paper"), c.Paper}, {"ours", c.Ours},
			{"difference", c.Difference}, {tolerance, c.Tolerance}} {
			if s[1] != "" {
				texts = append(texts, s[0]+" "+s[1])
			}
		}
		fmt.Fprintf(&b, "       %s\n", strings.Join(texts, ", "))
	}
	for _, line := range counts(checks) {
		fmt.Fprintln(&b, line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// counts returns a line for each kind that occurs, with the number of checks within their tolerance.
// Explained checks and known misses are not counted as passes.
func counts(checks []Check) []string {
	var lines []string
	for _, k := range allKinds {
		all, ok, meaning := 0, 0, k.Meaning()
		for _, c := range checks {
			if c.Kind == k {
				all++
				if c.Reference != "" {
					meaning = k.meaning(c.Reference)
				}
				if c.OK {
					ok++
				}
			}
		}
		switch {
		case all == 0:
		case k == Explained || k == KnownMiss:
			lines = append(lines, fmt.Sprintf("%s: %d, not counted: %s", k, all, meaning))
		default:
			lines = append(lines, fmt.Sprintf("%s: %d of %d within their tolerance: %s", k, ok, all, meaning))
		}
	}
	return lines
}
