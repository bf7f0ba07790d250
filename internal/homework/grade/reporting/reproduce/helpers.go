package reproduce

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"

	"llmmemory/grader"
)

// extraHelpers has the helpers that grader/process/tester.c does not have.
//
//go:embed c/helpers.c
var extraHelpers string

var declared = regexp.MustCompile(`(?m)^static [^;(]*?(\w+)\(`)

// helperTexts lists the C helper functions, each with its comment. A helper calls only helpers that come before it in
// the list.
var helperTexts = strings.Split(string(grader.Source("tester.c"))+extraHelpers, "\n/* ")[1:]

func helpers(text string) (used string) {
	for _, h := range slices.Backward(helperTexts) {
		h = "\n/* " + strings.TrimRight(h, "\n") + "\n"
		if m := declared.FindStringSubmatch(h); m != nil && strings.Contains(text+used, m[1]+"(") {
			used = h + used
		}
	}
	return used
}
