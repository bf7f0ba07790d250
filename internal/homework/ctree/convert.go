package ctree

import "modernc.org/cc/v4"

// A converter converts the trees of package cc to trees of this package. cc has a node for each level of the grammar.
type converter struct {
	vars map[*cc.Declarator]*Var
}

func converted(ast *cc.AST, file string) []*Function {
	c := &converter{map[*cc.Declarator]*Var{}}
	var all []*Function
	for unit := ast.TranslationUnit; unit != nil; unit = unit.TranslationUnit {
		d := unit.ExternalDeclaration
		if d == nil || d.Case != cc.ExternalDeclarationFuncDef || d.Position().Filename != file {
			continue
		}
		all = append(all, c.function(d.FunctionDefinition))
	}
	return all
}

func (c *converter) function(d *cc.FunctionDefinition) *Function {
	f := &Function{Name: d.Declarator.Name(), Line: d.Declarator.Position().Line}
	if t, ok := d.Declarator.Type().(*cc.FunctionType); ok {
		f.Result = typeOf(t.Result())
		for _, p := range t.Parameters() {
			if p.Declarator != nil {
				f.Params = append(f.Params, c.variable(p.Declarator))
			} else {
				f.Params = append(f.Params, &Var{Type: typeOf(p.Type())})
			}
		}
	}
	f.Body = c.block(d.CompoundStatement)
	return f
}

func (c *converter) variable(d *cc.Declarator) *Var {
	v := c.vars[d]
	if v == nil {
		v = &Var{d.Name(), typeOf(d.Type())}
		c.vars[d] = v
	}
	return v
}

func typeOf(t cc.Type) (r Type) {
	if t == nil {
		return r
	}
	t = t.Undecay()
	if a, ok := t.(*cc.ArrayType); ok {
		r.Array = true
		t = a.Elem()
	}
	for {
		p, ok := t.(*cc.PointerType)
		if !ok {
			break
		}
		r.Stars++
		t = p.Elem()
	}
	switch s := t.(type) {
	case *cc.StructType:
		tag := s.Tag()
		r.Base = tag.SrcStr()
	case *cc.UnionType:
		tag := s.Tag()
		r.Base = tag.SrcStr()
	default:
		r.Base = t.Kind().String()
	}
	if r.Base == "" && t.Typedef() != nil {
		r.Base = t.Typedef().Name()
	}
	return r
}

func (c *converter) block(b *cc.CompoundStatement) (all []*Stmt) {
	if b == nil {
		return nil
	}
	for l := b.BlockItemList; l != nil; l = l.BlockItemList {
		switch item := l.BlockItem; item.Case {
		case cc.BlockItemDecl:
			all = append(all, c.declaration(item.Declaration)...)
		case cc.BlockItemStmt:
			all = append(all, c.statement(item.Statement)...)
		}
	}
	return all
}

func (c *converter) declaration(d *cc.Declaration) (all []*Stmt) {
	if d == nil {
		return nil
	}
	if d.Case == cc.DeclarationAuto {
		return []*Stmt{c.declare(d.Declarator, d.Initializer)}
	}
	for l := d.InitDeclaratorList; l != nil; l = l.InitDeclaratorList {
		if i := l.InitDeclarator; i != nil && !i.Declarator.IsSynthetic() { // cc adds __func__ to each body
			all = append(all, c.declare(i.Declarator, i.Initializer))
		}
	}
	return all
}

func (c *converter) declare(d *cc.Declarator, i *cc.Initializer) *Stmt {
	return &Stmt{Kind: Declare, Line: d.Position().Line, Var: c.variable(d), Expr: c.initializer(i)}
}

func (c *converter) initializer(i *cc.Initializer) *Expr {
	if i == nil {
		return nil
	}
	if i.Case == cc.InitializerExpr {
		return c.expr(i.AssignmentExpression)
	}
	return c.initializers(i.Position().Line, i.InitializerList)
}

func (c *converter) initializers(line int, l *cc.InitializerList) *Expr {
	list := &Expr{Op: Comma, Line: line}
	for ; l != nil; l = l.InitializerList {
		if e := c.initializer(l.Initializer); e != nil {
			list.Args = append(list.Args, e)
		}
	}
	return list
}

func (c *converter) statement(s *cc.Statement) []*Stmt {
	if s == nil {
		return nil
	}
	line := s.Position().Line
	one := func(s *Stmt) []*Stmt { s.Line = line; return []*Stmt{s} }
	switch s.Case {
	case cc.StatementLabeled:
		l := s.LabeledStatement
		label := &Stmt{Kind: Label, Line: line}
		if l.Case == cc.LabeledStatementLabel {
			label.Label = l.Token.SrcStr()
		}
		return append([]*Stmt{label}, c.statement(l.Statement)...)
	case cc.StatementCompound:
		return one(&Stmt{Kind: Block, Body: c.block(s.CompoundStatement)})
	case cc.StatementExpr:
		if s.ExpressionStatement.ExpressionList == nil {
			return nil
		}
		return one(&Stmt{Kind: Eval, Expr: c.expr(s.ExpressionStatement.ExpressionList)})
	case cc.StatementSelection:
		i := s.SelectionStatement
		kind := If
		if i.Case == cc.SelectionStatementSwitch {
			kind = Switch
		}
		return one(&Stmt{Kind: kind, Cond: c.expr(i.ExpressionList), Body: c.statement(i.Statement), Else: c.statement(i.Statement2)})
	case cc.StatementIteration:
		return one(c.loop(s.IterationStatement))
	case cc.StatementJump:
		j := s.JumpStatement
		switch j.Case {
		case cc.JumpStatementBreak:
			return one(&Stmt{Kind: Break})
		case cc.JumpStatementContinue:
			return one(&Stmt{Kind: Continue})
		case cc.JumpStatementReturn:
			return one(&Stmt{Kind: Return, Expr: c.expr(j.ExpressionList)})
		case cc.JumpStatementGoto:
			return one(&Stmt{Kind: Goto, Label: j.Token2.SrcStr()})
		}
		return one(&Stmt{Kind: Goto})
	}
	return one(&Stmt{Kind: Assembly})
}

func (c *converter) loop(i *cc.IterationStatement) *Stmt {
	l := &Stmt{Kind: Loop, Body: c.statement(i.Statement)}
	switch i.Case {
	case cc.IterationStatementFor:
		if e := c.expr(i.ExpressionList); e != nil {
			l.Init = []*Stmt{{Kind: Eval, Line: e.Line, Expr: e}}
		}
		l.Cond, l.Step = c.expr(i.ExpressionList2), c.expr(i.ExpressionList3)
	case cc.IterationStatementForDecl:
		l.Init = c.declaration(i.Declaration)
		l.Cond, l.Step = c.expr(i.ExpressionList), c.expr(i.ExpressionList2)
	default:
		if i.Case == cc.IterationStatementDo {
			l.Kind = Do
		}
		l.Cond = c.expr(i.ExpressionList)
	}
	return l
}
