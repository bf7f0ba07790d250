package rules

import (
	"fmt"
	"slices"

	"llmmemory/internal/homework/course/handout"
	"llmmemory/internal/homework/ctree"
)

// casts checks the rule that part 2 of the handout calls a danger zone: the address of a list node is not the address
// of its Sequence.
func (p *program) casts() {
	for _, api := range six {
		for _, f := range p.reached(api.name) {
			look := func(target ctree.Type, e *ctree.Expr) {
				if target.Is(1, "Sequence") && p.node(e) {
					p.report(Breach{Rule: "node_cast", Sentence: handout.NodeCast + handout.Elided + handout.ContainerOf, Function: f.Name, Line: e.Line, Task: api.task,
						Message: fmt.Sprintf("line %d takes the address of a list node for that of its Sequence", e.Line)})
				}
			}
			ctree.Stmts(f.Body, func(s *ctree.Stmt) bool {
				if s.Kind == ctree.Declare {
					look(s.Var.Type, s.Expr)
				}
				return true
			})
			ctree.Exprs(f.Body, func(e *ctree.Expr) bool {
				switch {
				case e.Op == ctree.Cast && e.Type.Stars == 1 && e.Type.Base == "Sequence":
					look(e.Type, e.Args[0])
				case e.Op == ctree.Cast: // a further cast follows
					return e.Args[0].Op != ctree.Cast
				case e.Op == ctree.Assign && e.Operator == "=":
					look(e.Args[0].Type, e.Args[1])
				}
				return true
			})
		}
	}
}

// node reports whether an expression is the address of a list node, without any offset subtracted from it.
func (p *program) node(e *ctree.Expr) bool {
	e = e.Bare()
	if e == nil || !e.Type.Is(1, "list_node") {
		return false
	}
	switch e.Op {
	case ctree.Arrow, ctree.Member, ctree.Address:
		return true
	case ctree.Name:
		computed := func(part *ctree.Expr) bool { return part.Op == ctree.Arithmetic || part.Op == ctree.Call }
		return !slices.ContainsFunc(p.assigned[e.Var], func(a assignment) bool { return !a.value.IsZero() && mentions(a.value, computed) })
	}
	return false
}
