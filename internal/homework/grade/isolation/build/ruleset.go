package build

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// An Action is what happens to a submission that breaks a rule of the gate.
type Action string

// The actions. Only Refuse costs points: all of them.
const (
	Refuse Action = "refuse" // it is not run and scores 0
	Advise Action = "advise" // it is reported and costs nothing
	Ignore Action = "ignore" // it is not reported
)

// A GateRule forbids something in a submission.
type GateRule struct {
	Name    string
	Default Action
	Reason  string
}

// GateRules lists all rules. By default, a submission is refused if it attacks the grader or hides something
// from it. readText and checkObject check the rules.
var GateRules = []GateRule{
	{"size", Refuse, "more than 256 KiB of source, 1 MiB of code or 16 MiB of global data exhausts the tools that read it"},
	{"nul", Refuse, "a NUL byte hides the rest of a line from readers"},
	{"return", Refuse, "a carriage return within a line shows readers another line than the compiler"},
	{"nesting", Refuse, "more than 1000 nested parentheses or braces exhaust the compiler's stack"},
	{"trigraph", Advise, "a trigraph hides the character that it stands for"},
	{"digraph", Advise, "%: is another spelling of #"},
	{"line", Refuse, "#line makes messages point to other lines and files"},
	{"include", Refuse, "#include of anything but a header of the system reads other files into the compiler's messages"},
	{"header", Advise, "the header is not one of standard C, or <llm_memory.h> in place of \"llm_memory.h\""},
	{"pragma", Advise, "the pragma changes what the compiler checks or how it compiles; the flags of the course count"},
	{"symbol", Refuse, "the pragma changes what functions are called outside"},
	{"asm", Refuse, "assembly code can do what C cannot, and no rule sees it"},
	{"attribute", Refuse, "the attribute runs code outside the six calls, replaces symbols or hides code from the sanitizers"},
	{"optimize", Advise, "the attribute changes how a function is compiled; the flags of the course count"},
	{"sanitizer", Advise, "code for a build with sanitizers is never compiled: every build sees the text as the course's compiler does"},
	{"early", Refuse, "code that runs outside the six calls can replace the grader's"},
	{"section", Refuse, "a section of its own can hold code that no rule sees"},
	{"trap", Refuse, "code that calls the kernel by itself goes past the C library"},
	{"ifunc", Refuse, "code of its own chooses a function before the six calls run"},
	{"weak", Refuse, "others could take the place of a weak function"},
	{"needs", Refuse, "the function reaches other processes, the network or executable memory, and nothing in the homework needs it"},
	{"refused", Advise, "the function asks the system for something that the sandbox refuses, such as a file or the time, or reads what is empty there"},
	{"main", Advise, "a main function clashes with that of the course's test program"},
	{"defines", Advise, "a function or global variable without static can clash with a name of the test program or take the place of the C library's"},
}

// A Gate maps names of rules to actions. A rule that is missing has its default action.
type Gate map[string]Action

// ErrGateFile is wrapped by the errors of ParseGate.
var ErrGateFile = errors.New("not a gate file")

// String returns a file that ParseGate reads. Each line has a rule, an action and, after #, the reason.
func (g Gate) String() string {
	var b strings.Builder
	for _, r := range GateRules {
		fmt.Fprintf(&b, "%-10s %-7s # %s\n", r.Name, g.action(r.Name), r.Reason)
	}
	return b.String()
}

// ParseGate reads a gate file.
func ParseGate(text []byte) (Gate, error) {
	g := Gate{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 2 {
			return nil, fmt.Errorf("%w: line %d: it has to be a rule and refuse, advise or ignore", ErrGateFile, n)
		}
		name, action := fields[0], Action(fields[1])
		if !slices.ContainsFunc(GateRules, func(r GateRule) bool { return r.Name == name }) {
			return nil, fmt.Errorf("%w: line %d: there is no rule %q: \"llmgrade gate\" prints all", ErrGateFile, n, name)
		}
		if !slices.Contains([]Action{Refuse, Advise, Ignore}, action) {
			return nil, fmt.Errorf("%w: line %d: %q is not refuse, advise or ignore", ErrGateFile, n, action)
		}
		g[name] = action
	}
	return g, lines.Err()
}

// action returns what happens to a submission that breaks a rule. It panics if there is no such rule.
func (g Gate) action(rule string) Action {
	i := slices.IndexFunc(GateRules, func(r GateRule) bool { return r.Name == rule })
	if i < 0 {
		panic("the gate has no rule " + rule)
	}
	return cmp.Or(g[rule], GateRules[i].Default)
}

// verdicts applies a Gate to the rules that a submission breaks.
type verdicts struct {
	gate    Gate
	advice  []Refusal
	refused *Refusal // the first reason
}

const mostAdvice = 20 // that is reported

// broken records that a rule is broken on a line of llm_memory.c; line 0 means no particular line. The message,
// built from format and values, tells the student why.
func (v *verdicts) broken(line int, rule, format string, values ...any) {
	r := Refusal{line, rule, fmt.Sprintf(format, values...)}
	known := slices.ContainsFunc(v.advice, func(o Refusal) bool { return o.Rule == rule && o.Line == line })
	switch action := v.gate.action(rule); {
	case action == Refuse:
		v.refuse(&r)
	case action == Advise && v.refused == nil && !known && len(v.advice) < mostAdvice:
		v.advice = append(v.advice, r)
	}
}

// refuse records a reason that no Gate can change.
func (v *verdicts) refuse(r *Refusal) {
	if v.refused == nil {
		v.refused = r
	}
}

// err returns the reason to refuse the submission, nil if there is none.
func (v *verdicts) err() error {
	if v.refused == nil {
		return nil
	}
	return v.refused
}
