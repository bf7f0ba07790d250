package main

import (
	"strings"
	"unicode/utf8"
)

// wrap breaks a text at its spaces, for lines that begin behind indent columns.
func wrap(text string, indent int) []string {
	var all []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && indent+utf8.RuneCountInString(line+" "+word) > columns {
			all, line = append(all, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(all, line)
}
