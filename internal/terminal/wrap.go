// Package terminal is what the commands share: lines wrapped to a terminal, control
// characters removed from texts, --version, and suggestions for misspelt flags. Nothing
// here knows what a text is about.
package terminal

import (
	"strings"
	"unicode/utf8"
)

// Columns is how wide what a command prints may be.
const Columns = 100

// Wrap breaks a text at its spaces, for lines that begin after indent columns. A
// word that is too long has a line of its own.
func Wrap(text string, indent int) []string {
	var all []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && indent+utf8.RuneCountInString(line+" "+word) > Columns {
			all, line = append(all, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(all, line)
}
