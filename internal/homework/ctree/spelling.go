package ctree

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
)

// respelled finds what C spells in two ways and cc reads in one: digraphs and universal character names. It also finds
// the strings, character constants and comments that may contain the same characters. In a token, lines may be joined by
// a backslash (SPLICE).
var respelled = regexp.MustCompile(strings.ReplaceAll(`(?s)"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?`+
	`|/SPLICE/(?:\\.|[^\\\n])*|/SPLICE\*.*?\*SPLICE/|<SPLICE<`+
	`|%SPLICE:SPLICE%SPLICE:|%SPLICE:|<SPLICE:|:SPLICE>|<SPLICE%|%SPLICE>|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}`,
	"SPLICE", `(?:\\[ \t\f\v]*\r?\n)*`))

var splice = regexp.MustCompile(`\\[ \t\f\v]*\r?\n`)

var digraphs = map[string]string{"%:%:": "##", "%:": "#", "<:": "[", ":>": "]", "<%": "{", "%>": "}"}

// usual returns the text in the spelling that cc reads. Each token keeps its line.
func usual(text []byte) []byte {
	return respelled.ReplaceAllFunc(text, func(found []byte) []byte {
		if found[0] == '\\' {
			code, _ := strconv.ParseUint(string(found[2:]), 16, 32) // the pattern has only digits
			return []byte(string(rune(code)))
		}
		token := digraphs[string(splice.ReplaceAll(found, nil))]
		if token == "" {
			return found
		}
		return append([]byte(token), bytes.Join(splice.FindAll(found, -1), nil)...)
	})
}
