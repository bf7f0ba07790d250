package responses

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Limits of grammars. A rule that is used several times is written out each time.
const (
	maxLarkDepth = 50
	maxLarkBytes = 1 << 20 // of the grammars of a request and of the regular expressions of all their rules
)

var errLarkSize = fmt.Errorf("the grammars of the request and their regular expressions have more than %d bytes together", maxLarkBytes)

// larkPattern returns a regular expression for the texts of a grammar in Lark's syntax, from its rule start. A grammar
// whose rules refer to themselves has none. The bytes of the grammar and of the expressions of the rules are taken from
// left.
func larkPattern(grammar string, left *int) (string, error) {
	if *left -= len(grammar); *left < 0 {
		return "", errLarkSize
	}
	g := lark{left: left, rules: map[string]string{"LF": `"\n"`, "CR": `"\r"`, "NEWLINE": `/(\r?\n)+/`, "WS": `/[ \t\f\r\n]+/`, "WS_INLINE": `/[ \t]+/`,
		"DIGIT": `/[0-9]/`, "INT": `/[0-9]+/`, "LETTER": `/[a-zA-Z]/`, "WORD": `/[a-zA-Z]+/`}}
	name, lines := "", []string(nil) // of the last rule
	end := func() { g.rules[name] = strings.Join(lines, " ") }
	for line := range strings.SplitSeq(grammar, "\n") {
		text := strings.TrimSpace(line)
		switch head := larkHead.FindStringSubmatch(text); {
		case text == "", strings.HasPrefix(text, "//"):
		case strings.HasPrefix(text, "%import common."):
		case strings.HasPrefix(text, "%"):
			return "", fmt.Errorf("%q is not supported", text)
		case head != nil:
			end()
			name, lines = head[1], []string{text[len(head[0]):]}
		case name != "" && strings.HasPrefix(text, "|"):
			lines = append(lines, text)
		default:
			return "", fmt.Errorf("the line %q is not a rule", text)
		}
	}
	end()
	if g.rules["start"] == "" {
		return "", errors.New("there is no rule start")
	}
	return g.rule("start", 0)
}

// larkHead is the beginning of a rule: its name, perhaps with a mark before it or a priority after it.
var larkHead = regexp.MustCompile(`^[?!]?([A-Za-z_][A-Za-z0-9_]*)(?:\.-?[0-9]+)?\s*:`)

// larkToken is a part of a rule: an alias, a text, a regular expression, a name or a sign.
var larkToken = regexp.MustCompile(`^(?:(->\s*[A-Za-z_]+)|("(?:[^"\\]|\\.)*"i?)|(/(?:[^/\\]|\\.)+/[a-z]*)|([A-Za-z_][A-Za-z0-9_]*)|([()\[\]|?*+]|~[0-9]+(?:\.\.[0-9]+)?))`)

type lark struct {
	rules map[string]string
	left  *int
}

// rule returns the regular expression of a rule.
func (g *lark) rule(name string, depth int) (string, error) {
	text, known := g.rules[name]
	switch {
	case !known:
		return "", fmt.Errorf("there is no rule %s", name)
	case depth > maxLarkDepth:
		return "", fmt.Errorf("the rule %s refers to itself, or rules nest deeper than %d", name, maxLarkDepth)
	}
	var out strings.Builder
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		m := larkToken.FindStringSubmatch(text)
		if m == nil {
			return "", fmt.Errorf("in the rule %s, %q is not supported", name, text)
		}
		text = text[len(m[0]):]
		part, err := g.part(m, depth)
		if err != nil {
			return "", err
		}
		out.WriteString(part)
		if *g.left -= len(part) + 1; *g.left < 0 {
			return "", errLarkSize
		}
	}
	return "(?:" + out.String() + ")", nil
}

// part returns the regular expression of a token.
func (g *lark) part(m []string, depth int) (string, error) {
	_, quoted, pattern, name, sign := m[1], m[2], m[3], m[4], m[5]
	switch {
	case quoted != "":
		if strings.HasSuffix(quoted, "i") {
			return "", fmt.Errorf("the flag of %s is not supported", quoted)
		}
		text := strings.NewReplacer(`\n`, "\n", `\r`, "\r", `\t`, "\t", `\"`, `"`, `\\`, `\`).Replace(quoted[1 : len(quoted)-1])
		return "(?:" + regexp.QuoteMeta(text) + ")", nil
	case pattern != "":
		if !strings.HasSuffix(pattern, "/") {
			return "", fmt.Errorf("the flags of %s are not supported", pattern)
		}
		return "(?:" + strings.ReplaceAll(pattern[1:len(pattern)-1], `\/`, "/") + ")", nil
	case name != "":
		return g.rule(name, depth+1)
	case sign == "[":
		return "(?:", nil
	case sign == "]":
		return ")?", nil
	case sign == "(":
		return "(?:", nil
	case strings.HasPrefix(sign, "~"):
		return "{" + strings.Replace(sign[1:], "..", ",", 1) + "}", nil
	}
	return sign, nil // ), |, ?, *, +, or "" for an alias
}
