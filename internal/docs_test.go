package internal_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	link       = regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`)
	makeTarget = regexp.MustCompile("(?m)(?:`|^    )make ([a-z-]+)")
)

// documents returns the texts of all Markdown files by path.
func documents(t *testing.T) map[string]string {
	all := map[string]string{}
	eachSource(t, func(path string) {
		if filepath.Ext(path) == ".md" {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			all[path] = string(text)
		}
	})
	return all
}

func TestEveryLinkOfTheDocumentsLeadsToAFile(t *testing.T) {
	for path, text := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			_, err := os.Stat(filepath.Join(filepath.Dir(path), m[1]))
			require.NoErrorf(t, err, "linked in %s", path)
		}
	}
}

func TestNoMergeIsHalfDone(t *testing.T) {
	marker := regexp.MustCompile(`(?m)^(<{7}|>{7}) `)
	for path, text := range documents(t) {
		require.NotRegexpf(t, marker, text, "conflict markers in %s", path)
	}
}

func TestEveryMakeTargetOfTheDocumentsExists(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	var targets []string
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllStringSubmatch(string(makefile), -1) {
		targets = append(targets, m[1])
	}
	named := 0
	for path, text := range documents(t) {
		for _, m := range makeTarget.FindAllStringSubmatch(text, -1) {
			named++
			require.Truef(t, slices.Contains(targets, m[1]), "%s names make %s", path, m[1])
		}
	}
	require.Greater(t, named, 10)
}

// Ensure that the architecture document is short enough to be read in a few minutes. Longer texts belong beside the
// code that they explain.
func TestTheArchitectureIsShort(t *testing.T) {
	require.LessOrEqual(t, strings.Count(documents(t)["../internal/README.md"], "\n"), 150)
}
