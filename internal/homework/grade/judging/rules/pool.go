package rules

import (
	"fmt"
	"slices"

	"llmmemory/internal/homework/course/handout"
	"llmmemory/internal/homework/ctree"
)

// pool checks global constraint 4 and task 5 of the handout.
func (p *program) pool() {
	r := &poolReader{p, map[*ctree.Function]*summary{}, nil, map[*ctree.Expr]decision{}}
	for _, api := range six {
		f := p.functions[api.name]
		if f == nil {
			continue
		}
		for _, e := range r.function(f).effects {
			if !e.target.pool {
				continue
			}
			b := Breach{Function: e.function.Name, Line: e.line, Task: api.task, Advice: e.byCallee}
			switch {
			case e.frees:
				b.Rule, b.Sentence = "free_pool", handout.DestroyKeepsPool
				b.Message = fmt.Sprintf("line %d gives the pool to free, which it does not come from", e.line)
			case api.name == "append_kv":
				continue
			default:
				b.Rule, b.Sentence = "memset_pool", handout.WriteOnlyOnAppend
				if api.name == "create_sequence" {
					b.Sentence = handout.NoMemset
				}
				b.Message = fmt.Sprintf("line %d calls memset on the pool during %s", e.line, f.Name)
			}
			p.report(b)
		}
	}
}

// An origin says where a pointer points: into the pool, to the memory of parameters of the function, or both. params
// has one bit for each parameter.
type origin struct {
	anything bool // NULL or the variable itself: no information
	pool     bool
	params   uint64
}

func (o origin) common(other origin) origin {
	switch {
	case o.anything:
		return other
	case other.anything:
		return o
	}
	return origin{pool: o.pool && other.pool, params: o.params & other.params}
}

// An effect is a call of one of wipes or releases, such as memset or free.
type effect struct {
	frees    bool
	target   origin
	function *ctree.Function
	line     int
	optional bool // it does not happen in every call of the function
	byCallee bool // a called function decides
}

// A summary is what callers need to know about a function.
type summary struct {
	returns origin
	effects []effect
}

type poolReader struct {
	p       *program
	known   map[*ctree.Function]*summary
	reading []*ctree.Var

	decisions map[*ctree.Expr]decision
}

func (r *poolReader) function(f *ctree.Function) *summary {
	if s := r.known[f]; s != nil {
		return s
	}
	s := &summary{returns: origin{anything: true}}
	r.known[f] = s // for recursive calls
	ctree.Stmts(f.Body, func(st *ctree.Stmt) bool {
		if st.Kind == ctree.Return && st.Expr != nil {
			s.returns = s.returns.common(r.value(f, st.Expr))
		}
		return true
	})
	if s.returns.anything {
		s.returns = origin{}
	}
	r.stmts(f, s, f.Body, path{})
	return s
}

var wipes = []string{"memset", "__builtin_memset", "__memset_chk", "__builtin___memset_chk", "bzero", "explicit_bzero"}
var releases = []string{"free", "__builtin_free", "realloc", "__builtin_realloc", "reallocarray"}

// expr collects the effects of an expression that follows p, and returns the exits of statements in it.
func (r *poolReader) expr(f *ctree.Function, s *summary, e *ctree.Expr, p path) (x exit) {
	if e == nil {
		return 0
	}
	nothing := func(path) exit { return 0 }
	arg := func(i int) func(path) exit { return func(p path) exit { return r.expr(f, s, e.Args[i], p) } }
	switch e.Op {
	case ctree.Statements:
		return r.stmts(f, s, e.Body, p)
	case ctree.And:
		return arg(0)(p) | r.branches(f, e.Args[0], &p, true, true, arg(1), nothing)
	case ctree.Or:
		return arg(0)(p) | r.branches(f, e.Args[0], &p, true, true, nothing, arg(1))
	case ctree.Choose:
		then := arg(1)
		if e.Args[1] == e.Args[0] { // a ?: b
			then = nothing
		}
		return arg(0)(p) | r.branches(f, e.Args[0], &p, true, true, then, arg(2))
	case ctree.Call:
		r.call(f, s, e, p)
	}
	for i := range e.Args {
		x |= arg(i)(p)
	}
	return x
}

// call collects the effects of a call.
func (r *poolReader) call(f *ctree.Function, s *summary, e *ctree.Expr, p path) {
	optional := func(target origin) bool { return p.optional || p.tested&^target.params != 0 }
	frees := slices.Contains(releases, e.Func)
	if (frees || slices.Contains(wipes, e.Func)) && len(e.Args) > 0 {
		target := r.value(f, e.Args[0])
		s.effects = append(s.effects, effect{frees: frees, target: target, function: f, line: e.Line, optional: optional(target)})
	}
	callee := r.p.functions[e.Func]
	if callee == nil {
		return
	}
	for _, inner := range r.function(callee).effects {
		if !inner.target.pool { // the caller decides where
			inner.target = r.passed(f, e, inner.target)
			inner.function, inner.line = f, e.Line
		}
		inner.byCallee = inner.byCallee || inner.optional
		inner.optional = optional(inner.target)
		s.effects = append(s.effects, inner)
	}
}

func (r *poolReader) passed(f *ctree.Function, call *ctree.Expr, o origin) origin {
	all := origin{}
	for i, arg := range call.Args {
		if i < 64 && o.params&(1<<i) != 0 {
			v := r.value(f, arg)
			all.pool, all.params = all.pool || v.pool, all.params|v.params
		}
	}
	return all
}

// value returns where an expression leads, if it is a pointer.
func (r *poolReader) value(f *ctree.Function, e *ctree.Expr) origin {
	if e.IsZero() {
		return origin{anything: true}
	}
	if e.Type.Array && (e.Op == ctree.Index || e.Op == ctree.Deref || e.Op == ctree.Member || e.Op == ctree.Arrow) {
		return r.place(f, e)
	}
	switch e.Op {
	case ctree.Name:
		return r.variable(f, e.Var)
	case ctree.Arrow, ctree.Member:
		return origin{pool: e.Field == "pool_base_ptr"}
	case ctree.Cast:
		return r.value(f, e.Args[0])
	case ctree.Address:
		return r.place(f, e.Args[0])
	case ctree.Arithmetic:
		left, right := r.value(f, e.Args[0]), r.value(f, e.Args[1])
		switch {
		case left.anything && e.Operator != "*": // p = p + 1
			return left
		case e.Operator == "+":
			return origin{pool: left.pool || right.pool, params: left.params | right.params}
		case e.Operator == "-" && !right.pool:
			return origin{pool: left.pool, params: left.params}
		}
	case ctree.Choose:
		return r.value(f, e.Args[1]).common(r.value(f, e.Args[2]))
	case ctree.Comma:
		if len(e.Args) > 0 {
			return r.value(f, e.Args[len(e.Args)-1])
		}
	case ctree.Assign:
		if e.Operator == "=" {
			return r.value(f, e.Args[1])
		}
		return r.value(f, e.Args[0])
	case ctree.Count:
		return r.value(f, e.Args[0])
	case ctree.Call:
		if callee := r.p.functions[e.Func]; callee != nil {
			returns := r.function(callee).returns
			o := r.passed(f, e, returns)
			o.pool = o.pool || returns.pool
			return o
		}
	}
	return origin{}
}

func (r *poolReader) place(f *ctree.Function, e *ctree.Expr) origin {
	switch e.Op {
	case ctree.Index, ctree.Deref, ctree.Arrow:
		return r.value(f, e.Args[0])
	case ctree.Member:
		return r.place(f, e.Args[0])
	}
	return origin{}
}

func (r *poolReader) variable(f *ctree.Function, v *ctree.Var) origin {
	if v == nil || slices.Contains(r.reading, v) {
		return origin{anything: v != nil}
	}
	r.reading = append(r.reading, v)
	defer func() { r.reading = r.reading[:len(r.reading)-1] }()
	o := origin{anything: true}
	if i := slices.Index(f.Params, v); i >= 0 && i < 64 {
		o = origin{params: 1 << i}
		if f.Name == "llm_init" && i == 0 {
			o = origin{pool: true}
		}
	}
	for _, a := range r.p.assigned[v] {
		value := r.value(a.function, a.value)
		if a.function != f {
			value.params = 0
		}
		o = o.common(value)
	}
	if o.anything && len(r.reading) == 1 {
		return origin{}
	}
	return o
}
