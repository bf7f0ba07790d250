package rules

import (
	"cmp"
	"slices"

	"llmmemory/internal/homework/ctree"
)

var six = []struct {
	name string
	task int
}{
	{"llm_init", 1}, {"create_sequence", 2}, {"free_sequence", 2}, {"fork_sequence", 3}, {"append_kv", 4}, {"llm_destroy", 5},
}

// A program has the functions of a submission and the breaches that were found in them.
type program struct {
	functions map[string]*ctree.Function
	assigned  map[*ctree.Var][]assignment
	breaches  []Breach
}

// An assignment sets a variable, with "=" or in its declaration.
type assignment struct {
	function *ctree.Function
	value    *ctree.Expr
}

func read(functions []*ctree.Function) []Breach {
	p := &program{functions: map[string]*ctree.Function{}, assigned: map[*ctree.Var][]assignment{}}
	for _, f := range functions {
		p.functions[f.Name] = f
		p.assignments(f)
	}
	p.nullFirst()
	p.pool()
	p.loops()
	p.casts()
	return p.breaches
}

func (p *program) assignments(f *ctree.Function) {
	ctree.Stmts(f.Body, func(s *ctree.Stmt) bool {
		if s.Kind == ctree.Declare && s.Expr != nil {
			p.assigned[s.Var] = append(p.assigned[s.Var], assignment{f, s.Expr})
		}
		return true
	})
	ctree.Exprs(f.Body, func(e *ctree.Expr) bool {
		if e.Op == ctree.Assign && e.Operator == "=" && e.Args[0].Op == ctree.Name {
			p.assigned[e.Args[0].Var] = append(p.assigned[e.Args[0].Var], assignment{f, e.Args[1]})
		}
		return true
	})
}

const maxBreaches = 50

// report adds a breach. For each rule and line it keeps one breach, preferably one that costs points.
func (p *program) report(b Breach) {
	known := slices.IndexFunc(p.breaches, func(o Breach) bool { return o.Rule == b.Rule && o.Line == b.Line })
	if known < 0 {
		if len(p.breaches) < maxBreaches {
			p.breaches = append(p.breaches, b)
		}
	} else if p.breaches[known].Advice && !b.Advice {
		p.breaches[known] = b
	}
}

// reached returns a function and all functions that it calls or names, directly or indirectly, sorted by line. It does
// not follow function pointers in variables.
func (p *program) reached(name string) []*ctree.Function {
	var all []*ctree.Function
	var reach func(string)
	reach = func(name string) {
		f := p.functions[name]
		if f == nil || slices.Contains(all, f) {
			return
		}
		all = append(all, f)
		ctree.Exprs(f.Body, func(e *ctree.Expr) bool {
			if e.Func != "" {
				reach(e.Func)
			}
			return true
		})
	}
	reach(name)
	slices.SortFunc(all, func(a, b *ctree.Function) int { return cmp.Compare(a.Line, b.Line) })
	return all
}

func mentions(e *ctree.Expr, match func(*ctree.Expr) bool) (found bool) {
	e.Visit(func(part *ctree.Expr) bool {
		found = found || match(part)
		return !found
	})
	return found
}
