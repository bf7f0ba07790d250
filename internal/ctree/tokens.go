package ctree

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"modernc.org/cc/v4"
)

// A Token is a token of a source, as written there.
type Token struct {
	Text string
	Line int // from 1
}

// Name reports whether the token is an identifier and not a keyword.
func (t Token) Name() bool {
	c := t.Text[0]
	return (c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z') && !strings.HasSuffix(t.Text, `"`) && !strings.HasSuffix(t.Text, "'") && !keywords[t.Text]
}

var keywords = func() map[string]bool {
	all := map[string]bool{}
	for word := range strings.FieldsSeq(`auto break case char const continue default do double else enum extern float for goto if inline int
		long register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while _Bool`) {
		all[word] = true
	}
	return all
}()

// Tokens reads a source, which need not compile. No macro is expanded; comments and directives
// are left out.
func Tokens(text []byte) (all []Token, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("reading tokens: %v", p)
		}
	}()
	w := &tokenWriter{line: 1}
	err = cc.Preprocess(&cc.Config{}, []cc.Source{{Name: "source.c", Value: bare(text)}}, w)
	if len(w.all) > 0 { // cc continues after errors
		err = nil
	} else if err == nil {
		err = errors.New("reading tokens: there are none")
	}
	return w.all, err
}

// A tokenWriter receives each token in a call.
type tokenWriter struct {
	all  []Token
	line int
}

func (w *tokenWriter) Write(token []byte) (int, error) {
	if text := strings.TrimSpace(string(token)); text != "" {
		w.all = append(w.all, Token{text, w.line})
	}
	w.line += strings.Count(string(token), "\n")
	return len(token), nil
}

// bare returns a source without comments and directives; each line keeps its number.
func bare(text []byte) []byte {
	out := make([]byte, 0, len(text)+1)
	begins, directive := true, false // nothing of the line was seen yet
	for i := 0; i < len(text); i++ {
		c := text[i]
		if n := comment(text[i:]); n > 0 {
			for _, b := range text[i : i+n] {
				if b == '\n' {
					out = append(out, '\n')
				}
			}
			out = append(out, ' ')
			i += n - 1
			continue
		}
		n := 1
		switch {
		case c == '\\' && i+1 < len(text) && text[i+1] == '\n': // the line goes on
			out = append(out, '\n')
			i++
			continue
		case c == '\n':
			begins, directive = true, false
			out = append(out, c)
			continue
		case c == '#' && begins:
			directive = true
		case c == '"' || c == '\'':
			n = quoted(text[i:])
		}
		if c != ' ' && c != '\t' {
			begins = false
		}
		if !directive {
			out = append(out, text[i:i+n]...)
		}
		i += n - 1
	}
	return append(out, '\n')
}

// comment returns the length of the comment at the beginning of a text, or 0.
func comment(text []byte) int {
	switch s := string(text[:min(2, len(text))]); s {
	case "//":
		if n := bytes.IndexByte(text, '\n'); n >= 0 {
			return n
		}
		return len(text)
	case "/*":
		if n := bytes.Index(text[2:], []byte("*/")); n >= 0 {
			return n + 4
		}
		return len(text)
	}
	return 0
}

// quoted returns the length of a literal, which ends with its line at the latest.
func quoted(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '\n':
			return i
		case text[0]:
			return i + 1
		}
	}
	return len(text)
}
