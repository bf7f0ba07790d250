package traces

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"

	"llmmemory/internal/homework/course/trace"
)

//go:embed sweeps.trace
var sweepsText string

// lists are the lists to which a loop in sweeps.trace can refer by name. ids has different ints that would be equal
// if they were truncated to fewer bits or converted to float.
var lists = map[string]string{
	"ids":        "1 257 65537 16777217 16777216 -1 -65535 -2147483647 0 256 65536 -2147483648 2147483647 2147483646",
	"boundaries": "0 1 14 15 16 17 31 32 127 128 239 240 241 254 255",
}

func sweepsOf(task int) (all []Case, err error) {
	lines := map[string][]string{} // of each section
	for _, part := range sections(sweepsText) {
		lines[part.name] = strings.Split(part.body, "\n")
	}
	for _, part := range sections(sweepsText) {
		if !strings.HasPrefix(part.name, fmt.Sprintf("task%d_", task)) {
			continue
		}
		s := sweep{sections: lines, vars: map[string]int{}, parsed: map[string]ast.Expr{}}
		s.expand(lines[part.name], nil)
		ops, err := trace.Parse(s.text.String())
		if err != nil {
			return nil, fmt.Errorf("sweeps.trace, %s: %w", part.name, err)
		}
		all = append(all, Case{Task: task, Name: part.name, Sentence: part.sentence, Ops: ops, Real: tested(task, part.name), Sweep: true})
	}
	return all, nil
}

// A sweep expands a section of sweeps.trace, which has loops and conditions, to the text of a trace.
type sweep struct {
	sections map[string][]string
	vars     map[string]int
	parsed   map[string]ast.Expr
	text     strings.Builder
}

// expand writes the expansion of lines to the text. It replaces a line "try ID" by the lines in try, which are
// expanded with this id.
func (s *sweep) expand(lines, try []string) {
	for len(lines) > 0 {
		line, _, _ := strings.Cut(lines[0], "#")
		words := strings.Fields(line)
		lines = lines[1:]
		if len(words) == 0 {
			continue
		}
		var body []string
		if words[0] == "for" || words[0] == "if" || words[0] == "use" {
			body, lines = block(lines)
		}
		switch words[0] {
		case "for":
			name, index, _ := strings.Cut(words[1], ",")
			for i, value := range s.values(words[3:]) {
				s.vars[name], s.vars[index] = value, i
				s.expand(body, try)
			}
		case "if":
			if s.value(words[1]) != 0 {
				s.expand(body, try)
			}
		case "use":
			s.expand(s.sections[words[1]], body)
		case "try":
			s.vars["id"] = s.value(words[1])
			s.expand(try, nil)
		case "pool":
			if s.text.Len() > 0 {
				s.text.WriteString("destroy e0\n")
			}
			fmt.Fprintf(&s.text, "init e0 %d\n", 64*s.value(words[1]))
		default:
			s.text.WriteString(words[0] + " " + words[1])
			for _, number := range words[2:] {
				fmt.Fprintf(&s.text, " %d", int32(s.value(number))) // beyond INT_MAX it wraps
			}
			s.text.WriteByte('\n')
		}
	}
}

// block returns the lines up to the "end" that closes the block, and the lines after it.
func block(lines []string) (body, rest []string) {
	depth := 1
	for i, line := range lines {
		switch word, _, _ := strings.Cut(line, " "); word {
		case "for", "if", "use":
			depth++
		case "end":
			depth--
		}
		if depth == 0 {
			return lines[:i], lines[i+1:]
		}
	}
	panic("sweeps.trace: a block has no end") // the file is embedded
}

func (s *sweep) values(words []string) (all []int) {
	for _, word := range words {
		if list, found := lists[word]; found {
			all = append(all, s.values(strings.Fields(list))...)
		} else if low, high, found := strings.Cut(word, ".."); found {
			for n := s.value(low); n <= s.value(high); n++ {
				all = append(all, n)
			}
		} else {
			all = append(all, s.value(word))
		}
	}
	return all
}

func (s *sweep) value(text string) int {
	if n, err := strconv.Atoi(text); err == nil {
		return n
	}
	if s.parsed[text] == nil {
		e, err := parser.ParseExpr(text)
		if err != nil {
			panic("sweeps.trace: " + err.Error()) // the file is embedded
		}
		s.parsed[text] = e
	}
	return s.eval(s.parsed[text])
}

func (s *sweep) eval(e ast.Expr) int {
	switch e := e.(type) {
	case *ast.BasicLit:
		return s.value(e.Value)
	case *ast.Ident:
		return s.vars[e.Name]
	case *ast.ParenExpr:
		return s.eval(e.X)
	case *ast.UnaryExpr:
		return -s.eval(e.X)
	case *ast.BinaryExpr:
		return compute(s.eval(e.X), e.Op, s.eval(e.Y))
	}
	panic(fmt.Sprintf("sweeps.trace: a number is a %T", e))
}

func compute(a int, op token.Token, b int) int {
	switch op {
	case token.ADD:
		return a + b
	case token.SUB:
		return a - b
	case token.MUL:
		return a * b
	case token.QUO:
		return a / b
	case token.REM:
		return a % b
	case token.SHL:
		return a << b
	case token.EQL:
		return truth(a == b)
	case token.GTR:
		return truth(a > b)
	}
	panic("sweeps.trace: no operator " + op.String())
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}
