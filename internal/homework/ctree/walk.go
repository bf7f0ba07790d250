package ctree

// Exprs calls visit for the expressions in the statements. If visit returns false, Exprs skips the parts of that
// expression.
func Exprs(body []*Stmt, visit func(*Expr) bool) {
	Stmts(body, func(s *Stmt) bool {
		for _, e := range []*Expr{s.Cond, s.Step, s.Expr} {
			e.Visit(visit)
		}
		return true
	})
}

// Visit is Exprs for one expression, which may be nil.
func (e *Expr) Visit(visit func(*Expr) bool) {
	if e == nil || !visit(e) {
		return
	}
	for _, part := range e.Args {
		part.Visit(visit)
	}
	Exprs(e.Body, visit)
}

// Stmts calls visit for the statements and those inside them. If visit returns false, Stmts skips those inside that
// statement. It does not enter statement expressions.
func Stmts(body []*Stmt, visit func(*Stmt) bool) {
	for _, s := range body {
		if !visit(s) {
			continue
		}
		Stmts(s.Init, visit)
		Stmts(s.Body, visit)
		Stmts(s.Else, visit)
	}
}

// Bare returns the expression without casts around it.
func (e *Expr) Bare() *Expr {
	for e != nil && e.Op == Cast {
		e = e.Args[0]
	}
	return e
}

// IsZero reports whether the expression is 0 or NULL.
func (e *Expr) IsZero() bool {
	e = e.Bare()
	return e != nil && e.Op == Const && e.Value == 0
}

// Is reports whether the type is a pointer to base with this number of stars, or base itself if stars is 0. It
// returns false for an array.
func (t Type) Is(stars int, base string) bool { return t.Stars == stars && t.Base == base && !t.Array }
