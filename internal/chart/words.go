package chart

import (
	"strings"

	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
)

// lines breaks a text at its spaces so that each line has room. A word that is
// too long by itself is broken anywhere.
func lines(s text.Style, words string, room vg.Length) []string {
	var all []string
	line := ""
	for word := range strings.FieldsSeq(words) {
		if line != "" && s.Width(line+" "+word) <= room {
			line += " " + word
			continue
		}
		if line != "" {
			all = append(all, line)
		}
		for line = word; s.Width(line) > room; {
			n := fitting(s, line, room)
			all = append(all, line[:n])
			line = line[n:]
		}
	}
	return append(all, line)
}

func wrapped(s text.Style, words string, room vg.Length) string {
	return strings.Join(lines(s, words, room), "\n")
}

// fitting is how many bytes of a word have room: those of one letter at least,
// and not all.
func fitting(s text.Style, word string, room vg.Length) int {
	n := 0
	for i := range word {
		if i > 0 && s.Width(word[:i]) > room {
			break
		}
		if i > 0 {
			n = i
		}
	}
	if n == 0 {
		return len(word) // one letter
	}
	return n
}
