package build

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// An Action says what to do with a submission that breaks a rule of the gate.
type Action string

// The actions. Only Refuse costs points: all of them.
const (
	Refuse Action = "refuse" // it is not run and scores 0
	Advise Action = "advise" // it is reported and costs nothing
	Ignore Action = "ignore" // it is not reported
)

//go:embed gate.txt
var gateText string

// rules maps every rule to its default action. The default is to refuse a submission if it attacks the grader or
// hides something from it. readText and checkObject check the rules.
var rules, _ = parseGate(gateText, nil)

// A Gate maps rules to the actions that staff have chosen. A rule that is not in the map has its default action.
type Gate map[string]Action

// ErrGateFile is wrapped by the errors of ParseGate.
var ErrGateFile = errors.New("not a gate file")

// String returns a gate file, which ParseGate can read. For each rule it has a line with the action of the rule in g
// and the reason from gate.txt.
func (g Gate) String() string {
	var b strings.Builder
	for line := range strings.Lines(gateText) {
		name, _, _ := strings.Cut(line, " ")
		_, reason, _ := strings.Cut(line, "#")
		fmt.Fprintf(&b, "%-10s %-7s #%s", name, g.action(name), reason)
	}
	return b.String()
}

// ParseGate reads a gate file.
func ParseGate(text []byte) (Gate, error) { return parseGate(string(text), rules) }

// parseGate reads a gate file. All its rules must be in known, unless known is nil.
func parseGate(text string, known Gate) (Gate, error) {
	g, n := Gate{}, 0
	for line := range strings.Lines(text) {
		n++
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 2 {
			return nil, fmt.Errorf("%w: line %d: it has to be a rule and refuse, advise or ignore", ErrGateFile, n)
		}
		name, action := fields[0], Action(fields[1])
		if known != nil && known[name] == "" {
			return nil, fmt.Errorf("%w: line %d: there is no rule %q: \"llmgrade gate\" prints all", ErrGateFile, n, name)
		}
		if !slices.Contains([]Action{Refuse, Advise, Ignore}, action) {
			return nil, fmt.Errorf("%w: line %d: %q is not refuse, advise or ignore", ErrGateFile, n, action)
		}
		g[name] = action
	}
	return g, nil
}

// action returns the action for a submission that breaks a rule. It panics if there is no such rule.
func (g Gate) action(rule string) Action {
	if rules[rule] == "" {
		panic("the gate has no rule " + rule)
	}
	return cmp.Or(g[rule], rules[rule])
}

// verdicts applies a Gate to the rules that a submission breaks.
type verdicts struct {
	gate    Gate
	advice  []Refusal
	refused *Refusal // the first reason
}

const maxAdvice = 20 // that is reported

// broken records that the submission breaks a rule in a line of llm_memory.c, or in no particular line if line is 0.
// format and values are the message for the student.
func (v *verdicts) broken(line int, rule, format string, values ...any) {
	r := Refusal{line, rule, fmt.Sprintf(format, values...)}
	known := slices.ContainsFunc(v.advice, func(o Refusal) bool { return o.Rule == rule && o.Line == line })
	switch action := v.gate.action(rule); {
	case action == Refuse:
		v.refuse(&r)
	case action == Advise && v.refused == nil && !known && len(v.advice) < maxAdvice:
		v.advice = append(v.advice, r)
	}
}

// refuse records a reason that no Gate can change.
func (v *verdicts) refuse(r *Refusal) {
	if v.refused == nil {
		v.refused = r
	}
}

// err returns the first Refusal, or nil if the submission is not refused.
func (v *verdicts) err() error {
	if v.refused == nil {
		return nil
	}
	return v.refused
}
