// Package terminal has code that the commands share: wrapping lines to a terminal, making control characters
// visible, --version, and suggestions for misspelt flags.
package terminal

import (
	"strings"
	"unicode/utf8"
)

// Columns is the width of the text that commands print.
const Columns = 100

// Wrap breaks a text at its spaces into lines. The caller prints indent columns before each line, and a line together
// with these columns is at most Columns wide. A word that is too long gets its own line.
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
