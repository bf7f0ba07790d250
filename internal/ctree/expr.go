package ctree

import "modernc.org/cc/v4"

// expr converts what it knows; the rest is Other. Nil stays nil.
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
	two := func(op Op, t cc.Token, left, right cc.ExpressionNode) *Expr {
		return &Expr{Op: op, Operator: t.SrcStr(), Args: []*Expr{c.expr(left), c.expr(right)}}
	}
	switch n := n.(type) {
	case *cc.ExpressionList:
		if n.ExpressionList == nil {
			return c.expr(n.AssignmentExpression)
		}
		comma := &Expr{Op: Comma}
		for l := n; l != nil; l = l.ExpressionList {
			comma.Args = append(comma.Args, c.expr(l.AssignmentExpression))
		}
		return comma
	case *cc.AssignmentExpression:
		if n.Case == cc.AssignmentExpressionCond {
			return c.expr(n.ConditionalExpression)
		}
		return two(Assign, n.Token, n.UnaryExpression, n.AssignmentExpression)
	case *cc.ConditionalExpression:
		if n.Case == cc.ConditionalExpressionLOr {
			return c.expr(n.LogicalOrExpression)
		}
		cond := c.expr(n.LogicalOrExpression)
		then := cond // a ?: b
		if n.ExpressionList != nil {
			then = c.expr(n.ExpressionList)
		}
		return &Expr{Op: Choose, Args: []*Expr{cond, then, c.expr(n.ConditionalExpression)}}
	case *cc.ConstantExpression:
		return c.expr(n.ConditionalExpression)
	case *cc.LogicalOrExpression:
		if n.Case == cc.LogicalOrExpressionLAnd {
			return c.expr(n.LogicalAndExpression)
		}
		return two(Or, n.Token, n.LogicalOrExpression, n.LogicalAndExpression)
	case *cc.LogicalAndExpression:
		if n.Case == cc.LogicalAndExpressionOr {
			return c.expr(n.InclusiveOrExpression)
		}
		return two(And, n.Token, n.LogicalAndExpression, n.InclusiveOrExpression)
	case *cc.InclusiveOrExpression:
		if n.Case == cc.InclusiveOrExpressionXor {
			return c.expr(n.ExclusiveOrExpression)
		}
		return two(Arithmetic, n.Token, n.InclusiveOrExpression, n.ExclusiveOrExpression)
	case *cc.ExclusiveOrExpression:
		if n.Case == cc.ExclusiveOrExpressionAnd {
			return c.expr(n.AndExpression)
		}
		return two(Arithmetic, n.Token, n.ExclusiveOrExpression, n.AndExpression)
	case *cc.AndExpression:
		if n.Case == cc.AndExpressionEq {
			return c.expr(n.EqualityExpression)
		}
		return two(Arithmetic, n.Token, n.AndExpression, n.EqualityExpression)
	case *cc.EqualityExpression:
		if n.Case == cc.EqualityExpressionRel {
			return c.expr(n.RelationalExpression)
		}
		return two(Compare, n.Token, n.EqualityExpression, n.RelationalExpression)
	case *cc.RelationalExpression:
		if n.Case == cc.RelationalExpressionShift {
			return c.expr(n.ShiftExpression)
		}
		return two(Compare, n.Token, n.RelationalExpression, n.ShiftExpression)
	case *cc.ShiftExpression:
		if n.Case == cc.ShiftExpressionAdd {
			return c.expr(n.AdditiveExpression)
		}
		return two(Arithmetic, n.Token, n.ShiftExpression, n.AdditiveExpression)
	case *cc.AdditiveExpression:
		if n.Case == cc.AdditiveExpressionMul {
			return c.expr(n.MultiplicativeExpression)
		}
		return two(Arithmetic, n.Token, n.AdditiveExpression, n.MultiplicativeExpression)
	case *cc.MultiplicativeExpression:
		if n.Case == cc.MultiplicativeExpressionCast {
			return c.expr(n.CastExpression)
		}
		return two(Arithmetic, n.Token, n.MultiplicativeExpression, n.CastExpression)
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

// constant is a number, or something else whose value no rule asks for.
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
