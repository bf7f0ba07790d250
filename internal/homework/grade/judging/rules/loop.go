package rules

import (
	"fmt"
	"slices"

	"llmmemory/internal/homework/course/handout"
	"llmmemory/internal/homework/ctree"
)

// loops checks the rule about traversal in task 2: a loop must not end at the first empty slot. The handout states it
// for free_sequence. If fork_sequence or llm_destroy breaks the rule, the student gets advice and loses no points. The
// same holds for a loop of any of the three that ends at an unmapped block, and for a loop of free_sequence that ends
// at kv_count.
func (p *program) loops() {
	for _, api := range []struct {
		name   string
		task   int
		l1, l2 string
	}{
		{"free_sequence", 2, handout.FreeAllSlots, handout.FreeReleases},
		{"fork_sequence", 3, handout.ForkCopies, handout.ForkShares},
		{"llm_destroy", 5, handout.DestroyAll, handout.FreeReleases},
	} {
		for _, f := range p.reached(api.name) {
			r := &loopReader{program: p}
			r.stmts(f.Body, nil)
			for _, l := range r.early {
				if b := l.breach(api.name == "free_sequence", api.l1, api.l2); b != nil {
					b.Function, b.Task = f.Name, api.task
					p.report(*b)
				}
			}
		}
	}
}

// breach returns the Breach for a loop that ends early, or nil if the handout allows the loop. frees means that the
// loop is in free_sequence. l1 and l2 are the sentences of the handout about L1 and L2 tables.
func (l early) breach(frees bool, l1, l2 string) *Breach {
	b := &Breach{Rule: l.rule, Line: l.line, Advice: true}
	switch l.rule {
	case "l1_break":
		b.Advice = !frees
		b.Sentence = l1
		b.Message = fmt.Sprintf("line %d ends the loop at the first NULL of the L1 table; tables after it are left out", l.line)
	case "l2_break":
		b.Sentence = l2
		b.Message = fmt.Sprintf("line %d ends the loop at the first -1 of an L2 table; blocks after it are left out", l.line)
	case "l1_all_slots":
		if !frees {
			return nil
		}
		b.Sentence = handout.FreeAllSlots
		b.Message = fmt.Sprintf("the loop in line %d ends where kv_count does; tables after it are left out", l.line)
	}
	return b
}

// A loopReader examines the loops that visit a sequence's tables and change counts or free memory. It finds those
// that may end early.
type loopReader struct {
	*program
	early []early
}

type early struct {
	rule string
	line int
}

func (r *loopReader) stmts(body []*ctree.Stmt, enclosing []*ctree.Stmt) {
	for _, s := range body {
		within := enclosing
		if s.Kind == ctree.Loop || s.Kind == ctree.Do {
			r.loop(s, enclosing)
			within = append(slices.Clone(enclosing), s)
		}
		r.stmts(s.Body, within)
		r.stmts(s.Else, within)
	}
}

func (r *loopReader) loop(l *ctree.Stmt, enclosing []*ctree.Stmt) {
	if !r.matters(l.Body, nil) {
		return
	}
	steps := r.changed(l, nil)
	for _, outer := range enclosing { // the outer loop uses the same index
		for v := range r.changed(outer, l) {
			delete(steps, v)
		}
	}
	for _, look := range []struct {
		rule string
		test func(*ctree.Expr) (absent, present bool)
	}{
		{"l1_break", func(e *ctree.Expr) (bool, bool) { return r.nullSlot(e, steps, l) }},
		{"l2_break", func(e *ctree.Expr) (bool, bool) { return r.unmapped(e, steps) }},
	} {
		t := tester{look.test}
		if t.implies(l.Cond, false) {
			r.early = append(r.early, early{look.rule, l.Cond.Line})
		}
		r.leaving(l, l.Body, t, look.rule)
	}
	if r.counted(l.Cond, 0) && r.indexes(l, steps) {
		r.early = append(r.early, early{"l1_all_slots", l.Line})
	}
}

// leaving finds the statements in the loop l that leave it when a table is NULL or a block is -1.
func (r *loopReader) leaving(l *ctree.Stmt, body []*ctree.Stmt, t tester, rule string) {
	for _, s := range body {
		switch s.Kind {
		case ctree.Block:
			r.leaving(l, s.Body, t, rule)
		case ctree.If:
			if line := leaves(l, s.Body); line > 0 && t.implies(s.Cond, true) {
				r.early = append(r.early, early{rule, line})
			}
			if line := leaves(l, s.Else); line > 0 && t.implies(s.Cond, false) {
				r.early = append(r.early, early{rule, line})
			}
		}
	}
}

// leaves returns the line of the first statement in body that leaves the loop, or 0 if there is none.
func leaves(l *ctree.Stmt, body []*ctree.Stmt) int {
	for _, s := range body {
		switch s.Kind {
		case ctree.Break, ctree.Return:
			return s.Line
		case ctree.Goto:
			inside := false
			ctree.Stmts(l.Body, func(o *ctree.Stmt) bool {
				inside = inside || o.Kind == ctree.Label && o.Label == s.Label
				return true
			})
			if !inside {
				return s.Line
			}
		case ctree.Block:
			if line := leaves(l, s.Body); line > 0 {
				return line
			}
		}
	}
	return 0
}

// A tester recognises comparisons that test whether a table or block is absent (NULL or -1).
type tester struct {
	test func(*ctree.Expr) (whenAbsent, whenPresent bool)
}

// implies reports whether an expression certainly has the value if the table or block is absent.
func (t tester) implies(e *ctree.Expr, value bool) bool {
	if e = e.Bare(); e == nil {
		return false
	}
	absent, present := t.test(e)
	if value && absent || !value && present {
		return true
	}
	switch e.Op {
	case ctree.Or, ctree.And:
		left, right := t.implies(e.Args[0], value), t.implies(e.Args[1], value)
		if value == (e.Op == ctree.Or) { // one operand decides
			return left || right
		}
		return left && right
	case ctree.Not:
		return t.implies(e.Args[0], !value)
	}
	return false
}

// nullSlot recognises "slot == NULL" (absent) and "slot != NULL" (present) for a slot of the L1 table. The loop must
// visit the slots one after the other. nullSlot ignores a slot if the loop assigns a table to it.
func (r *loopReader) nullSlot(e *ctree.Expr, steps map[*ctree.Var]bool, l *ctree.Stmt) (absent, present bool) {
	slot := e
	if e.Op == ctree.Compare {
		if slot = other(e); slot == nil {
			return false, false
		}
	}
	if !r.slot(slot, steps, 0) || fills(l, slot.Bare()) {
		return false, false
	}
	return e.Op == ctree.Compare && e.Operator == "==", e.Op != ctree.Compare || e.Operator == "!="
}

func other(e *ctree.Expr) *ctree.Expr {
	switch {
	case e.Args[1].IsZero():
		return e.Args[0]
	case e.Args[0].IsZero():
		return e.Args[1]
	}
	return nil
}

// slot reports whether an expression is an entry of an L1 table through which the loop steps. Such an expression is
// table[i], or *p where p is a pointer into the table. It can also be a variable if only such entries and NULL are
// assigned to it.
func (r *loopReader) slot(e *ctree.Expr, steps map[*ctree.Var]bool, depth int) bool {
	e = e.Bare()
	if e == nil || !e.Type.Is(1, "int") || depth > 3 {
		return false
	}
	switch e.Op {
	case ctree.Index, ctree.Deref:
		return e.Args[0].Type.Stars == 2 && mentions(e, func(part *ctree.Expr) bool { return part.Op == ctree.Name && steps[part.Var] })
	case ctree.Name:
		return r.allAssigned(e.Var, func(value *ctree.Expr) bool { return r.slot(value, steps, depth+1) })
	}
	return false
}

// allAssigned reports whether a variable has at least one assignment, and each value that is assigned to it is 0 or
// satisfies the condition.
func (r *loopReader) allAssigned(v *ctree.Var, condition func(*ctree.Expr) bool) bool {
	all := r.assigned[v]
	return len(all) > 0 && !slices.ContainsFunc(all, func(a assignment) bool { return !a.value.IsZero() && !condition(a.value) })
}

// fills reports whether the loop assigns to the slot something else than NULL, as a loop that allocates tables does.
func fills(l *ctree.Stmt, slot *ctree.Expr) (found bool) {
	ctree.Exprs(l.Body, func(e *ctree.Expr) bool {
		found = found || e.Op == ctree.Assign && equal(e.Args[0], slot) && !e.Args[1].IsZero() && slot.Op != ctree.Name
		return !found
	})
	return found
}

func equal(a, b *ctree.Expr) bool {
	return a.Op == b.Op && a.Var == b.Var && a.Field == b.Field && a.Func == b.Func && a.Value == b.Value && a.Operator == b.Operator &&
		slices.EqualFunc(a.Args, b.Args, equal)
}

// unmapped recognises "entry == -1" (absent) and "entry != -1" (present), and comparisons with the same meaning, such
// as "entry < 0".
func (r *loopReader) unmapped(e *ctree.Expr, steps map[*ctree.Var]bool) (absent, present bool) {
	if e.Op != ctree.Compare || !r.entry(e.Args[0], steps, 0) {
		return false, false
	}
	operand := e.Args[1].Bare()
	minusOne := operand.Op == ctree.Negative && operand.Args[0].Op == ctree.Const && operand.Args[0].Value == 1
	zero := operand.IsZero()
	return minusOne && e.Operator == "==" || zero && e.Operator == "<",
		minusOne && (e.Operator == "!=" || e.Operator == ">") || zero && e.Operator == ">="
}

func (r *loopReader) entry(e *ctree.Expr, steps map[*ctree.Var]bool, depth int) bool {
	e = e.Bare()
	if e == nil || !e.Type.Is(0, "int") || depth > 3 {
		return false
	}
	switch e.Op {
	case ctree.Index, ctree.Deref:
		return !mentions(e, func(part *ctree.Expr) bool { return part.Field == "ref_count" }) &&
			mentions(e, func(part *ctree.Expr) bool { return part.Op == ctree.Name && steps[part.Var] })
	case ctree.Name:
		return r.allAssigned(e.Var, func(value *ctree.Expr) bool { return r.entry(value, steps, depth+1) })
	}
	return false
}

func (r *loopReader) changed(l, inner *ctree.Stmt) map[*ctree.Var]bool {
	all := map[*ctree.Var]bool{}
	note := func(e *ctree.Expr) bool {
		if (e.Op == ctree.Assign || e.Op == ctree.Count) && e.Args[0].Op == ctree.Name && e.Args[0].Var != nil {
			all[e.Args[0].Var] = true
		}
		return true
	}
	l.Cond.Visit(note)
	l.Step.Visit(note)
	ctree.Stmts(l.Body, func(s *ctree.Stmt) bool {
		if s == inner {
			return false
		}
		for _, e := range []*ctree.Expr{s.Cond, s.Step, s.Expr} {
			e.Visit(note)
		}
		return true
	})
	return all
}

// matters reports whether statements, or functions that they call, free memory or use ref_count.
func (r *loopReader) matters(body []*ctree.Stmt, seen []string) (found bool) {
	ctree.Exprs(body, func(e *ctree.Expr) bool {
		found = found || e.Field == "ref_count" || e.Op == ctree.Call && slices.Contains(releases, e.Func)
		if callee := r.functions[e.Func]; !found && callee != nil && !slices.Contains(seen, e.Func) {
			found = r.matters(callee.Body, append(slices.Clone(seen), e.Func))
		}
		return !found
	})
	return found
}

func (r *loopReader) counted(e *ctree.Expr, depth int) bool {
	return depth < 4 && mentions(e, func(part *ctree.Expr) bool {
		if part.Field == "kv_count" {
			return true
		}
		return part.Op == ctree.Name && slices.ContainsFunc(r.assigned[part.Var], func(a assignment) bool { return r.counted(a.value, depth+1) })
	})
}

func (r *loopReader) indexes(l *ctree.Stmt, steps map[*ctree.Var]bool) (found bool) {
	ctree.Exprs(l.Body, func(e *ctree.Expr) bool {
		found = found || e.Op != ctree.Name && r.slot(e, steps, 0)
		return !found
	})
	return found
}
