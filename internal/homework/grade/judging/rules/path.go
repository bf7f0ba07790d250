package rules

import "llmmemory/internal/homework/ctree"

// A path says what is known about the way to a statement, from the start of its function.
type path struct {
	optional bool   // not every call of the function gets there
	tested   uint64 // parameters that must not be NULL to get there, a bit for each
}

// An exit is a way in which a statement can end other than at its end. A return that reports a failure is none: the
// handout speaks of what a function does, not of what it refuses to do.
type exit uint8

const (
	leavesFunction exit = 1 << iota // the function returns success, or goes to a label
	continues                       // of the innermost loop
	breaks                          // of the innermost loop or switch
)

// stmts collects the effects of statements that follow p. It returns the exits that a call of the function may take.
// What follows an exit is optional, as are the branches of an if and of an operator with a condition, and everything in
// a switch. For a condition that only tests for NULL, stmts takes the branch that is taken without NULL (see decided).
// The body of a loop is not optional, because loops over blocks have bodies that are executed.
func (r *poolReader) stmts(f *ctree.Function, s *summary, body []*ctree.Stmt, p path) (all exit) {
	for _, st := range body {
		x := r.stmts(f, s, st.Init, p)
		for _, e := range []*ctree.Expr{st.Cond, st.Step, st.Expr} {
			x |= r.expr(f, s, e, p)
		}
		switch st.Kind {
		case ctree.If:
			x |= r.branches(f, st.Cond, &p, !hasLabel(st.Body), !hasLabel(st.Else),
				func(p path) exit { return r.stmts(f, s, st.Body, p) }, func(p path) exit { return r.stmts(f, s, st.Else, p) })
		case ctree.Switch:
			x |= r.stmts(f, s, st.Body, path{true, p.tested}) &^ breaks
		case ctree.Loop, ctree.Do:
			x |= r.stmts(f, s, st.Body, p) &^ (breaks | continues)
		case ctree.Break:
			x |= breaks
		case ctree.Continue:
			x |= continues
		case ctree.Goto:
			x |= leavesFunction
		case ctree.Return:
			if !fails(f, st.Expr) {
				x |= leavesFunction
			}
		default:
			x |= r.stmts(f, s, st.Body, p)
		}
		p.optional = p.optional || x != 0
		all |= x
	}
	return all
}

// branches collects the effects of the two branches of a condition. If the condition is decided, branches leaves out the
// branch that is not taken, provided that it may (skipThen, skipElse), and adds to p what must not be NULL.
func (r *poolReader) branches(f *ctree.Function, cond *ctree.Expr, p *path, skipThen, skipElse bool, thenBranch, elseBranch func(path) exit) (x exit) {
	d := r.decided(f, cond)
	if d.known {
		p.tested |= d.tested
	}
	branch := func(taken, skip bool, effects func(path) exit) {
		switch {
		case d.known && d.value == taken:
			x |= effects(*p)
		case !d.known || !skip:
			x |= effects(path{true, p.tested})
		}
	}
	branch(true, skipThen, thenBranch)
	branch(false, skipElse, elseBranch)
	return x
}

func hasLabel(body []*ctree.Stmt) (found bool) {
	ctree.Stmts(body, func(s *ctree.Stmt) bool {
		found = found || s.Kind == ctree.Label
		return !found
	})
	return found
}

// fails reports whether a function that returns the value reports a failure: by NULL or a negative number.
func fails(f *ctree.Function, returned *ctree.Expr) bool {
	return returned != nil && (returned.IsZero() && f.Result.Stars > 0 || returned.Bare().Op == ctree.Negative)
}

// A decision is the value of a condition if no pointer to an engine, no pointer into the pool and no parameter of tested
// is NULL.
type decision struct {
	known, value bool
	tested       uint64
}

// decided returns the decision of a condition. It is known if the condition consists of constants, and of tests for NULL
// of such pointers.
func (r *poolReader) decided(f *ctree.Function, e *ctree.Expr) decision {
	if e == nil {
		return decision{}
	}
	d, found := r.decisions[e]
	if !found {
		d = r.decide(f, e)
		r.decisions[e] = d
	}
	return d
}

func (r *poolReader) decide(f *ctree.Function, e *ctree.Expr) decision {
	switch e.Op {
	case ctree.Const:
		return decision{known: true, value: e.Value != 0}
	case ctree.Cast:
		return r.decided(f, e.Args[0])
	case ctree.Not:
		d := r.decided(f, e.Args[0])
		d.value = !d.value
		return d
	case ctree.And, ctree.Or:
		return r.both(r.decided(f, e.Args[0]), r.decided(f, e.Args[1]), e.Op == ctree.Or)
	case ctree.Compare:
		left, right := e.Args[0], e.Args[1]
		if left.IsZero() {
			left, right = right, left
		}
		if d := r.decided(f, left); right.IsZero() && (e.Operator == "==" || e.Operator == "!=") {
			d.value = d.value == (e.Operator == "!=")
			return d
		}
		return decision{}
	case ctree.Call:
		if e.Func == "__builtin_expect" && len(e.Args) > 0 {
			return r.decided(f, e.Args[0])
		}
	}
	if e.Type.Stars == 0 || e.Type.Array {
		return decision{}
	}
	o := r.value(f, e)
	switch {
	case e.Type.Is(1, "LLMEngine"), o.pool && !o.anything:
		return decision{known: true, value: true}
	case o.params != 0 && !o.anything:
		return decision{true, true, o.params}
	}
	return decision{}
}

// both returns the decision of a && b, or of a || b if decisive is true: a value that decides alone.
func (r *poolReader) both(a, b decision, decisive bool) decision {
	switch {
	case a.known && a.value == decisive:
		return a
	case b.known && b.value == decisive:
		return b
	}
	return decision{a.known && b.known, !decisive, a.tested | b.tested}
}
