package ctree

import "modernc.org/cc/v4"

// expr converts an expression. It converts an expression of a kind that it does not know to Other, and nil to nil.
func (c *converter) expr(n cc.ExpressionNode) *Expr {
	if n == nil {
		return nil
	}
	e := c.operation(n)
	if e.Line == 0 {
		e.Line = n.Position().Line
	}
	if e.Type == (Type{}) {
		e.Type = typeOf(n.Type())
	}
	return e
}

func (c *converter) operation(n cc.ExpressionNode) *Expr {
	switch n := n.(type) {
	case *cc.ExpressionList:
		return c.comma(n)
	case *cc.AssignmentExpression:
		if n.Case == cc.AssignmentExpressionCond {
			return c.expr(n.ConditionalExpression)
		}
		return &Expr{Op: Assign, Operator: n.Token.SrcStr(), Args: []*Expr{c.expr(n.UnaryExpression), c.expr(n.AssignmentExpression)}}
	case *cc.ConditionalExpression:
		return c.choice(n)
	case *cc.ConstantExpression:
		return c.expr(n.ConditionalExpression)
	case *cc.LogicalOrExpression:
		return c.binary(n.Case == cc.LogicalOrExpressionLAnd, Or, n.Token, n.LogicalOrExpression, n.LogicalAndExpression)
	case *cc.LogicalAndExpression:
		return c.binary(n.Case == cc.LogicalAndExpressionOr, And, n.Token, n.LogicalAndExpression, n.InclusiveOrExpression)
	case *cc.InclusiveOrExpression:
		return c.binary(n.Case == cc.InclusiveOrExpressionXor, Arithmetic, n.Token, n.InclusiveOrExpression, n.ExclusiveOrExpression)
	case *cc.ExclusiveOrExpression:
		return c.binary(n.Case == cc.ExclusiveOrExpressionAnd, Arithmetic, n.Token, n.ExclusiveOrExpression, n.AndExpression)
	case *cc.AndExpression:
		return c.binary(n.Case == cc.AndExpressionEq, Arithmetic, n.Token, n.AndExpression, n.EqualityExpression)
	case *cc.EqualityExpression:
		return c.binary(n.Case == cc.EqualityExpressionRel, Compare, n.Token, n.EqualityExpression, n.RelationalExpression)
	case *cc.RelationalExpression:
		return c.binary(n.Case == cc.RelationalExpressionShift, Compare, n.Token, n.RelationalExpression, n.ShiftExpression)
	case *cc.ShiftExpression:
		return c.binary(n.Case == cc.ShiftExpressionAdd, Arithmetic, n.Token, n.ShiftExpression, n.AdditiveExpression)
	case *cc.AdditiveExpression:
		return c.binary(n.Case == cc.AdditiveExpressionMul, Arithmetic, n.Token, n.AdditiveExpression, n.MultiplicativeExpression)
	case *cc.MultiplicativeExpression:
		return c.binary(n.Case == cc.MultiplicativeExpressionCast, Arithmetic, n.Token, n.MultiplicativeExpression, n.CastExpression)
	case *cc.CastExpression:
		if n.Case == cc.CastExpressionUnary {
			return c.expr(n.UnaryExpression)
		}
		return &Expr{Op: Cast, Args: []*Expr{c.expr(n.CastExpression)}, Type: typeOf(n.TypeName.Type())}
	case *cc.UnaryExpression:
		return c.unary(n)
	case *cc.PostfixExpression:
		return c.postfix(n)
	case *cc.PrimaryExpression:
		return c.primary(n)
	}
	return &Expr{Op: Other}
}

// binary converts an expression of a grammar rule that has a binary operator. Package cc uses such a rule also for a
// single operand without the operator. In this case noOperator is true, and binary only converts the operand, which is
// in the parameter right.
func (c *converter) binary(noOperator bool, op Op, t cc.Token, left, right cc.ExpressionNode) *Expr {
	if noOperator {
		return c.expr(right)
	}
	return &Expr{Op: op, Operator: t.SrcStr(), Args: []*Expr{c.expr(left), c.expr(right)}}
}

func (c *converter) comma(n *cc.ExpressionList) *Expr {
	if n.ExpressionList == nil {
		return c.expr(n.AssignmentExpression)
	}
	e := &Expr{Op: Comma}
	for l := n; l != nil; l = l.ExpressionList {
		e.Args = append(e.Args, c.expr(l.AssignmentExpression))
	}
	return e
}

func (c *converter) choice(n *cc.ConditionalExpression) *Expr {
	if n.Case == cc.ConditionalExpressionLOr {
		return c.expr(n.LogicalOrExpression)
	}
	cond := c.expr(n.LogicalOrExpression)
	then := cond // a ?: b
	if n.ExpressionList != nil {
		then = c.expr(n.ExpressionList)
	}
	return &Expr{Op: Choose, Args: []*Expr{cond, then, c.expr(n.ConditionalExpression)}}
}

func (c *converter) unary(n *cc.UnaryExpression) *Expr {
	one := func(op Op, arg cc.ExpressionNode) *Expr {
		return &Expr{Op: op, Operator: n.Token.SrcStr(), Args: []*Expr{c.expr(arg)}}
	}
	switch n.Case {
	case cc.UnaryExpressionPostfix:
		return c.expr(n.PostfixExpression)
	case cc.UnaryExpressionInc, cc.UnaryExpressionDec:
		return one(Count, n.UnaryExpression)
	case cc.UnaryExpressionAddrof:
		return one(Address, n.CastExpression)
	case cc.UnaryExpressionDeref:
		return one(Deref, n.CastExpression)
	case cc.UnaryExpressionPlus:
		return c.expr(n.CastExpression)
	case cc.UnaryExpressionMinus:
		return one(Negative, n.CastExpression)
	case cc.UnaryExpressionCpl:
		return one(Other, n.CastExpression)
	case cc.UnaryExpressionNot:
		return one(Not, n.CastExpression)
	case cc.UnaryExpressionSizeofExpr, cc.UnaryExpressionSizeofType, cc.UnaryExpressionAlignofExpr, cc.UnaryExpressionAlignofType:
		return constant(n)
	}
	return &Expr{Op: Other}
}

func (c *converter) postfix(n *cc.PostfixExpression) *Expr {
	switch n.Case {
	case cc.PostfixExpressionPrimary:
		return c.expr(n.PrimaryExpression)
	case cc.PostfixExpressionIndex:
		return &Expr{Op: Index, Args: []*Expr{c.expr(n.PostfixExpression), c.expr(n.ExpressionList)}}
	case cc.PostfixExpressionCall:
		call := &Expr{Op: Call}
		if f := c.expr(n.PostfixExpression); f != nil && f.Op == Name && f.Func != "" {
			call.Func = f.Func
		} else {
			call.Args = append(call.Args, f)
		}
		for l := n.ArgumentExpressionList; l != nil; l = l.ArgumentExpressionList {
			call.Args = append(call.Args, c.expr(l.AssignmentExpression))
		}
		return call
	case cc.PostfixExpressionSelect:
		return &Expr{Op: Member, Args: []*Expr{c.expr(n.PostfixExpression)}, Field: n.Token2.SrcStr()}
	case cc.PostfixExpressionPSelect:
		return &Expr{Op: Arrow, Args: []*Expr{c.expr(n.PostfixExpression)}, Field: n.Token2.SrcStr()}
	case cc.PostfixExpressionInc, cc.PostfixExpressionDec:
		return &Expr{Op: Count, Operator: n.Token.SrcStr(), Args: []*Expr{c.expr(n.PostfixExpression)}}
	case cc.PostfixExpressionComplit:
		return c.initializers(n.Position().Line, n.InitializerList)
	}
	return &Expr{Op: Other}
}

func (c *converter) primary(n *cc.PrimaryExpression) *Expr {
	switch n.Case {
	case cc.PrimaryExpressionIdent:
		switch d := n.ResolvedTo().(type) {
		case *cc.Declarator:
			if d.Type() != nil && d.Type().Kind() == cc.Function {
				return &Expr{Op: Name, Func: d.Name()}
			}
			return &Expr{Op: Name, Var: c.variable(d)}
		case *cc.Parameter:
			if d.Declarator != nil {
				return &Expr{Op: Name, Var: c.variable(d.Declarator)}
			}
		case *cc.Enumerator:
			return constant(n)
		case nil: // built into the compiler
			return &Expr{Op: Name, Func: n.Token.SrcStr()}
		}
	case cc.PrimaryExpressionInt, cc.PrimaryExpressionChar, cc.PrimaryExpressionFloat, cc.PrimaryExpressionString:
		return constant(n)
	case cc.PrimaryExpressionExpr:
		return c.expr(n.ExpressionList)
	case cc.PrimaryExpressionStmt:
		return &Expr{Op: Statements, Body: c.block(n.CompoundStatement)}
	case cc.PrimaryExpressionGeneric:
		if a := n.GenericSelection.Associated(); a != nil {
			return c.expr(a.AssignmentExpression)
		}
	}
	return &Expr{Op: Other}
}

// constant converts a constant. The Value of a constant that is no integer is -1 << 63.
func constant(n cc.ExpressionNode) *Expr {
	e := &Expr{Op: Const, Value: -1 << 63}
	switch v := n.Value().(type) {
	case cc.Int64Value:
		e.Value = int64(v)
	case cc.UInt64Value:
		e.Value = int64(v)
	}
	return e
}
