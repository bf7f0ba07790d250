package build

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

const (
	maxBytes   = 256 << 10
	maxNesting = 1000 // of parentheses, brackets and braces
)

// A Refusal says why a submission was refused before it ran. It wraps ErrGate.
type Refusal struct {
	Line int    // line of llm_memory.c; 0: none
	Rule string // name of the rule: size
	Why  string // for the student
}

func (r *Refusal) Error() string {
	if r.Line == 0 {
		return fmt.Sprintf("%v: llm_memory.c: %s", ErrGate, r.Why)
	}
	return fmt.Sprintf("%v: llm_memory.c:%d: %s", ErrGate, r.Line, r.Why)
}

func (r *Refusal) Unwrap() error { return ErrGate }

// Form reports whether the broken rule is about the form of the file. An attack rarely breaks such a rule. The usual
// causes are old line endings, another encoding, or a header file that the student wrote.
func (r *Refusal) Form() bool {
	if r.Rule == "include" {
		return strings.HasPrefix(r.Why, "#include of ") && !strings.Contains(r.Why, "/") // not of another folder
	}
	return slices.Contains([]string{"size", "nul", "return", "nesting"}, r.Rule)
}

// A text has the results of checking the source text of a submission. Later checks need them.
type text struct {
	words      map[string]int // the first line of each
	pastes     bool           // macros can make words that are not in the text: by ##, _Pragma, or a header that is not C's
	defines    bool
	attributes bool // there are attributes, or words that name one
}

// line returns the number of the line in which a word first occurs in the source. It takes the first of words that
// occurs at all, and returns 0 if none does.
func (t *text) line(words ...string) int {
	for _, w := range words {
		if line := t.words[w]; line > 0 {
			return line
		}
	}
	return 0
}

// readText checks the text of a source before any tool reads it. The text must not read other files, change the
// compiler's options or line numbers, or mean something else to the compiler than to a reader.
func readText(source []byte, v *verdicts) (*text, error) {
	bytesGate(source, v)
	g := &textGate{text: text{words: map[string]int{}}, verdicts: v}
	s := newScanner(source)
	var line []token
	for {
		t, ok := s.next()
		if ok && t.kind != newline {
			line = append(line, t)
			continue
		}
		if len(line) > 0 {
			g.line(line)
			line = line[:0]
		}
		if !ok {
			return &g.text, v.err()
		}
	}
}

func bytesGate(source []byte, v *verdicts) {
	line := func(offset int) int { return 1 + bytes.Count(source[:offset], []byte("\n")) }
	if len(source) > maxBytes {
		v.broken(0, "size", "the file has more than %d KiB", maxBytes>>10)
	}
	if offset := bytes.IndexByte(source, 0); offset >= 0 {
		v.broken(line(offset), "nul", "there is a NUL byte: this is not C source")
	}
	for offset := range source {
		if source[offset] == '\r' && !bytes.HasPrefix(source[offset+1:], []byte("\n")) {
			v.broken(line(offset), "return",
				"there is a carriage return within the line: save the file with the ends of lines that Linux or Windows has")
			return
		}
	}
}

// readExpanded checks the preprocessor's output, except for the lines that come from headers.
func readExpanded(expanded []byte, v *verdicts) error {
	g := &textGate{text: text{words: map[string]int{}}, verdicts: v}
	own, at := false, 0
	for line := range bytes.Lines(expanded) {
		if marker, found := bytes.CutPrefix(line, []byte("# ")); found {
			var file string
			if _, err := fmt.Sscanf(string(marker), "%d %q", &at, &file); err == nil {
				own = path.Base(file) == "llm_memory.c"
				continue
			}
		}
		if own {
			var tokens []token
			for s := newScanner(line); ; {
				t, ok := s.next()
				if !ok || t.kind == newline {
					break
				}
				t.line = at
				tokens = append(tokens, t)
			}
			if len(tokens) > 0 {
				g.line(tokens)
			}
		}
		at++
	}
	return v.err()
}

type textGate struct {
	text
	*verdicts
	depth     int
	attribute int    // depth of the parentheses of __attribute__, or of the outer brackets of [[ ]]
	opening   bool   // the next parenthesis is that of __attribute__
	last      string // the token before
}

func (g *textGate) line(tokens []token) {
	for _, t := range tokens {
		if t.odd {
			g.broken(t.line, "trigraph", "there is a trigraph (%q is written with ??): write the character itself", t.text)
		}
		if t.digraph && t.text[0] == '#' {
			g.broken(t.line, "digraph", "%%: is another spelling of #: write #")
		}
	}
	if tokens[0].text != "#" {
		g.code(tokens)
		return
	}
	g.directive(tokens[1:])
	if len(tokens) > 1 && (tokens[1].text == "error" || tokens[1].text == "warning") { // the rest is prose
		return
	}
	around := *g
	g.depth, g.attribute, g.opening, g.last = 0, 0, false, "" // a macro need not close what it opens
	g.code(tokens)
	g.depth, g.attribute, g.opening, g.last = around.depth, around.attribute, around.opening, around.last
}

func (g *textGate) directive(tokens []token) {
	if len(tokens) == 0 {
		return
	}
	name, rest := tokens[0], tokens[1:]
	switch {
	case name.text == "define":
		g.defines = true
	case name.text == "line" || name.kind == literal:
		g.broken(name.line, "line", "#line makes messages point to other lines and files: take it out")
	case name.text == "include":
		g.include(name, rest)
	case included(name.text):
		g.broken(name.line, "include", "#%s is not C11: use #include", name.text)
	case name.text == "pragma":
		g.pragma(name, rest)
	}
}

var systemHeader = regexp.MustCompile(`^[a-z0-9_]+(/[a-z0-9_]+)?\.h$`)

func (g *textGate) include(name token, rest []token) {
	if len(rest) == 0 || rest[0].kind != header {
		g.broken(name.line, "include", "#include needs the name of a header itself, not a macro")
		return
	}
	file := rest[0].text[1 : len(rest[0].text)-1]
	switch {
	case rest[0].text == "<llm_memory.h>":
		g.broken(name.line, "header", `write #include "llm_memory.h": with the command of the handout, gcc looks for <llm_memory.h> among the headers of the system only`)
	case listed("headers", file):
	case rest[0].text[0] == '<' && systemHeader.MatchString(file):
		g.pastes = true // its macros can hold anything
		g.broken(name.line, "header", "<%s> is not a header of standard C", file)
	default:
		g.broken(name.line, "include", "#include of %.100q: a submission is one file and may include llm_memory.h and the headers of standard C", file)
	}
}

// pragma reports pragmas that suppress the compiler's messages, change its flags, or rename symbols.
func (g *textGate) pragma(name token, rest []token) {
	var words []string
	for _, t := range rest {
		words = append(words, t.text)
	}
	words = append(words, "", "")
	harmless := []string{"poison", "unroll", "ivdep", "warning", "error"}
	if words[0] == "GCC" && !slices.Contains(harmless, words[1]) {
		g.broken(name.line, "pragma", "#pragma GCC %.40s changes what the compiler checks or how it compiles; "+
			"the flags of the course count for all. Take it out and repair what the compiler then says", words[1])
	}
	if words[0] == "weak" || words[0] == "redefine_extname" {
		g.broken(name.line, "symbol", "#pragma %s changes what functions are called outside: take it out", words[0])
	}
}

// words lists words that the homework does not need.
var words = map[string]Refusal{
	"asm":                  {0, "asm", "is assembly code: write C"},
	"__asm":                {0, "asm", "is assembly code: write C"},
	"__asm__":              {0, "asm", "is assembly code: write C"},
	"__has_include":        {0, "include", "looks for files: take it out"},
	"__has_include_next":   {0, "include", "looks for files: take it out"},
	"__has_embed":          {0, "include", "looks for files: take it out"},
	"__SANITIZE_ADDRESS__": {0, "sanitizer", "is not defined here: all builds see the same text"},
}

func (g *textGate) code(tokens []token) {
	for _, t := range tokens {
		switch t.kind {
		case word:
			g.word(t)
		case mark:
			g.mark(t)
		}
		g.last = t.text
	}
}

func (g *textGate) word(t token) {
	if g.words[t.text] == 0 {
		g.words[t.text] = t.line
	}
	if r, found := words[t.text]; found {
		g.broken(t.line, r.Rule, "%s %s", t.text, r.Why)
		return
	}
	plain := strings.TrimSuffix(strings.TrimPrefix(t.text, "__"), "__")
	refused, optimizes := listed("attributes", plain), listed("optimizing", plain)
	g.attributes = g.attributes || refused || optimizes
	switch {
	case t.text == "_Pragma":
		g.pastes = true // its text is checked in the output of the preprocessor
	case t.text == "__attribute__" || t.text == "__attribute":
		g.attributes, g.opening = true, true
	case g.attribute == 0:
	case refused:
		g.broken(t.line, "attribute", "the attribute %s is not for a homework: take it out", plain)
	case optimizes:
		g.broken(t.line, "optimize", "the attribute %s changes how the function is compiled: take it out", plain)
	}
}

func (g *textGate) mark(t token) {
	switch t.text {
	case "##":
		g.pastes = true
	case "(", "[", "{":
		g.depth++
		switch {
		case g.opening:
			g.attribute, g.opening = g.depth, false
		case t.text == "[" && g.last == "[" && g.attribute == 0: // C has two in a row only where [[ begins an attribute
			g.attribute = g.depth - 1
		}
		if g.depth > maxNesting {
			g.broken(t.line, "nesting", "more than %d parentheses and braces inside each other", maxNesting)
		}
	case ")", "]", "}":
		if g.depth == g.attribute {
			g.attribute = 0
		}
		g.depth = max(0, g.depth-1)
	}
}
