// Package terminal is what commands share towards who types: lines that a terminal has
// room for, no characters that it obeys, the flag that was meant. Nothing here knows
// what the text is about.
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
