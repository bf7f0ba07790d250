package internal_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	// A citation may continue on the next line of a comment.
	citation = regexp.MustCompile(`((?:[\w.-]+/)*[A-Z]+\.md)\x60?,?[ \t]*(?:\r?\n[ \t]*(?://|\*|#)?[ \t]*)?((?:(?:, | and )?§ ?\d+(?:\.\d+)*)+)`)
	section  = regexp.MustCompile(`\d+(?:\.\d+)*`)
	heading  = regexp.MustCompile(`^#+ §? ?(\d+(?:\.\d+)*)[. ]`)
	item     = regexp.MustCompile(`^(\d+)\. `)
)

// Ensure that each section that a file cites is a heading of a document in the repository. If the citation
// also names an item, the section must have a numbered list with that item.
func TestCitationsLeadSomewhere(t *testing.T) {
	const root = ".."
	headings := map[string][]string{} // by document
	cited := 0
	eachSource(t, func(name string) {
		if !slices.Contains([]string{".go", ".c", ".h", ".s", ".md", ".js"}, filepath.Ext(name)) {
			return
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		if !bytes.Contains(text, []byte("§")) {
			return // the expression takes long to see it
		}
		for _, match := range citation.FindAllStringSubmatch(string(text), -1) {
			document := find(root, name, match[1])
			if document == "" {
				t.Errorf("%s cites %s, which is not in the repository", name, match[1])
				continue
			}
			if headings[document] == nil {
				text, err := os.ReadFile(document)
				require.NoError(t, err)
				headings[document] = sections(string(text))
			}
			for _, number := range section.FindAllString(match[2], -1) {
				cited++
				if !slices.Contains(headings[document], number) {
					t.Errorf("%s cites %s §%s, which is not a heading of %s", name, match[1], number, document)
				}
			}
		}
	})
	require.Greater(t, cited, 100, "the citations are not recognised")
}

// sections are the numbers that a document has.
func sections(text string) (numbers []string) {
	current := ""
	for line := range strings.Lines(text) {
		if h := heading.FindStringSubmatch(line); h != nil {
			current = h[1]
			numbers = append(numbers, current)
		} else if i := item.FindStringSubmatch(line); i != nil && current != "" {
			numbers = append(numbers, current+"."+i[1])
		}
	}
	return numbers
}

// find looks for a document in the folder of the file that cites it, and then in the parent folders.
func find(root, file, document string) string {
	for dir := filepath.Dir(file); ; dir = filepath.Dir(dir) {
		for _, candidate := range []string{filepath.Join(dir, document), filepath.Join(dir, "internal", document)} {
			if _, err := os.Stat(candidate); err == nil {
				return candidate
			}
		}
		if dir == root || dir == "." || dir == "/" {
			return ""
		}
	}
}
