package rules

import (
	"fmt"

	"llmmemory/internal/homework/course/handout"
	"llmmemory/internal/homework/ctree"
)

// nullFirst checks global constraint 1 of the handout: a function must compare engine with NULL first. A function that
// uses the engine before the comparison loses points. For any other statement with an effect before the comparison, the
// report only has advice.
func (p *program) nullFirst() {
	r := nullReader{p, map[paramOf]outcome{}}
	for _, api := range six {
		f := p.functions[api.name]
		if f == nil || len(f.Params) == 0 || !f.Params[0].Type.Is(1, "LLMEngine") {
			continue
		}
		breach := Breach{Rule: "null_check_first", Sentence: handout.NullEngine, Function: f.Name, Task: api.task}
		switch first := r.param(f, 0); first.event {
		case used:
			breach.Line = first.line
			breach.Message = fmt.Sprintf("%s uses the engine in line %d without having looked whether it is NULL", f.Name, first.line)
			p.report(breach)
		case tested:
			if before := r.before(f); before != nil {
				breach.Line, breach.Advice = before.Line, true
				breach.Message = fmt.Sprintf("%s does something else in line %d before it looks whether engine is NULL", f.Name, before.Line)
				p.report(breach)
			}
		}
	}
}

// An outcome is the first thing that a function does with a pointer, and its line.
type outcome struct {
	event happening
	line  int
}

type happening int

const (
	nothing happening = iota
	tested            // it is compared with NULL
	used              // its target is accessed
	unclear
)

type paramOf struct {
	f *ctree.Function
	i int
}

type nullReader struct {
	p     *program
	known map[paramOf]outcome
}

func (r *nullReader) param(f *ctree.Function, i int) outcome {
	key := paramOf{f, i}
	if o, found := r.known[key]; found {
		return o
	}
	r.known[key] = outcome{} // for recursive calls
	o := r.follow(f, i).stmts(f.Body)
	r.known[key] = o
	return o
}

func (r *nullReader) follow(f *ctree.Function, i int) *follower {
	return &follower{r, map[*ctree.Var]bool{f.Params[i]: true}}
}

// before returns the first statement with an effect that precedes the comparison with NULL, or nil if there is none.
func (r *nullReader) before(f *ctree.Function) *ctree.Stmt {
	names := r.follow(f, 0)
	var before *ctree.Stmt
	for _, s := range f.Body {
		if names.stmt(s).event == tested {
			return before
		}
		if before == nil && acts(s) {
			before = s
		}
	}
	return nil
}

func acts(s *ctree.Stmt) bool {
	if s.Kind != ctree.Declare && s.Kind != ctree.Eval {
		return true
	}
	return mentions(s.Expr, func(e *ctree.Expr) bool {
		return e.Op == ctree.Call || e.Op == ctree.Assign || e.Op == ctree.Count || e.Op == ctree.Statements
	})
}

// A follower reads the statements of a function in the order of execution, as far as this order is known.
type follower struct {
	*nullReader
	names map[*ctree.Var]bool // variables that have the pointer's value
}

func (f *follower) stmts(all []*ctree.Stmt) outcome {
	for _, s := range all {
		if o := f.stmt(s); o.event != nothing {
			return o
		}
	}
	return outcome{}
}

func first(parts ...func() outcome) outcome {
	for _, part := range parts {
		if o := part(); o.event != nothing {
			return o
		}
	}
	return outcome{}
}

func (f *follower) stmt(s *ctree.Stmt) outcome {
	cond := func() outcome { return f.truth(s.Cond) }
	body := func() outcome { return f.stmts(s.Body) }
	switch s.Kind {
	case ctree.Goto, ctree.Assembly:
		return outcome{unclear, s.Line}
	case ctree.Declare:
		if f.isPointer(s.Expr) {
			f.names[s.Var] = true
			return outcome{}
		}
		return f.expr(s.Expr)
	case ctree.Do:
		return first(body, cond)
	}
	return first(func() outcome { return f.stmts(s.Init) }, cond, func() outcome { return f.expr(s.Expr) }, body,
		func() outcome { return f.stmts(s.Else) }, func() outcome { return f.expr(s.Step) })
}

func (f *follower) isPointer(e *ctree.Expr) bool {
	e = e.Bare()
	return e != nil && e.Op == ctree.Name && f.names[e.Var]
}

func (f *follower) each(look func(*ctree.Expr) outcome, all ...*ctree.Expr) outcome {
	for _, e := range all {
		if o := look(e); o.event != nothing {
			return o
		}
	}
	return outcome{}
}

func (f *follower) truth(e *ctree.Expr) outcome {
	if f.isPointer(e) {
		return outcome{tested, e.Line}
	}
	return f.expr(e)
}

func (f *follower) expr(e *ctree.Expr) outcome {
	if e == nil {
		return outcome{}
	}
	switch e.Op {
	case ctree.Not, ctree.And, ctree.Or:
		return f.each(f.truth, e.Args...)
	case ctree.Choose:
		if o := f.truth(e.Args[0]); o.event != nothing {
			return o
		}
	case ctree.Compare:
		if f.isPointer(e.Args[0]) || f.isPointer(e.Args[1]) {
			return outcome{tested, e.Line}
		}
	case ctree.Arrow, ctree.Deref, ctree.Index:
		if f.isPointer(e.Args[0]) {
			return outcome{used, e.Line}
		}
	case ctree.Address:
		return f.address(e.Args[0])
	case ctree.Assign:
		return f.assign(e)
	case ctree.Count:
		if f.isPointer(e.Args[0]) {
			return outcome{unclear, e.Line}
		}
	case ctree.Call:
		return f.call(e)
	case ctree.Statements:
		return f.stmts(e.Body)
	}
	return f.each(f.expr, e.Args...)
}

// address follows &engine->field, which accesses nothing.
func (f *follower) address(e *ctree.Expr) outcome {
	place := e
	for place.Op == ctree.Member {
		place = place.Args[0]
	}
	if (place.Op == ctree.Arrow || place.Op == ctree.Deref) && f.isPointer(place.Args[0]) {
		return outcome{}
	}
	return f.expr(e)
}

func (f *follower) assign(e *ctree.Expr) outcome {
	target, value := e.Args[0], e.Args[1]
	if target.Op != ctree.Name {
		return f.each(f.expr, value, target)
	}
	switch {
	case f.isPointer(value):
		f.names[target.Var] = true
		return outcome{}
	case f.names[target.Var]:
		return outcome{unclear, e.Line}
	}
	return f.expr(value)
}

func (f *follower) call(e *ctree.Expr) outcome {
	if o := f.each(f.expr, e.Args...); o.event != nothing {
		return o
	}
	callee := f.p.functions[e.Func]
	for i, part := range e.Args {
		switch {
		case !f.isPointer(part):
		case e.Func == "":
			return outcome{unclear, e.Line}
		case callee != nil && i < len(callee.Params):
			if o := f.param(callee, i); o.event != nothing {
				return outcome{o.event, e.Line}
			}
		}
	}
	return outcome{}
}
