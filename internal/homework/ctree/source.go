package ctree

import (
	"fmt"
	"path"
	"runtime"

	"modernc.org/cc/v4"
)

// expansions limits how many tokens the macros of a source may produce.
const expansions = 20_000_000

// A Function is a function that a source defines.
type Function struct {
	Name   string
	Line   int
	Params []*Var
	Result Type
	Body   []*Stmt
}

// A Var is a parameter or a variable.
type Var struct {
	Name string
	Type Type
}

// A Type is a simplified C type.
type Type struct {
	Stars int    // number of pointer levels
	Base  string // the type that they point at; for a struct or union, its tag, or its typedef if it has none
	Array bool   // an array of the type that Stars and Base describe
}

// A Kind is the kind of a statement.
type Kind int

// The kinds of statements. A Do evaluates its condition after the body; a Loop (while or for) evaluates it before.
const (
	Do Kind = iota + 1
	Loop
	If
	Switch
	Break
	Continue
	Return
	Goto
	Label // also case and default
	Eval  // an expression
	Declare
	Block
	Assembly
)

// A Stmt is a statement. Absent expressions are nil.
type Stmt struct {
	Kind  Kind
	Line  int
	Init  []*Stmt // of a for
	Cond  *Expr   // of a loop, an if or a switch
	Step  *Expr   // of a for
	Expr  *Expr   // of Eval, Return, Declare
	Var   *Var    // of Declare
	Body  []*Stmt // of a loop, a block, a switch, an if
	Else  []*Stmt
	Label string // of Label (empty: case, default) and Goto (empty: computed)
}

// An Op is the kind of an expression.
type Op int

// The kinds of expressions. Parentheses have no node. sizeof is a Const.
const (
	Other Op = iota
	Const
	Name
	Call       // Func(Args...); if Func is empty, Args[0] is the called expression
	Member     // Args[0].Field
	Arrow      // Args[0]->Field
	Index      // Args[0][Args[1]]
	Deref      // *Args[0]
	Address    // &Args[0]
	Not        // !Args[0]
	Negative   // -Args[0]
	Arithmetic // Args[0] Operator Args[1]
	Compare    // Args[0] Operator Args[1]
	And        // Args[0] && Args[1]
	Or         // Args[0] || Args[1]
	Choose     // Args[0] ? Args[1] : Args[2]
	Assign     // Args[0] Operator Args[1]
	Count      // ++ or -- (Operator) of Args[0]
	Cast       // to Type
	Comma      // Args in their order; also an initializer list
	Statements // ({ Body })
)

// An Expr is an expression.
type Expr struct {
	Op       Op
	Operator string // as C writes it
	Line     int
	Type     Type
	Args     []*Expr
	Var      *Var   // of a Name that is a variable
	Func     string // of a Call, and of a Name that is a function
	Field    string
	Value    int64 // of a Const
	Body     []*Stmt
}

// ParseSource parses a source that the compiler has accepted. It returns the functions that the source defines, in
// order, without those of headers. An #include finds only the given files and those in the compiler's folders.
func ParseSource(c Compiler, name string, text []byte, files map[string][]byte) (functions []*Function, err error) {
	abi, err := cc.NewABI(runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return nil, fmt.Errorf("layout of C types: %w", err)
	}
	config := &cc.Config{
		ABI:             abi,
		FS:              headers{files, c.IncludePath},
		FSOnly:          true,
		IncludePaths:    append([]string{""}, c.IncludePath...),
		SysIncludePaths: append([]string{"."}, c.IncludePath...), // gcc -I.
		ExpansionLimit:  expansions,
	}
	name = path.Base(name)
	defer func() {
		if p := recover(); p != nil { // cc panics on some code
			functions, err = nil, fmt.Errorf("parsing %s: %v", name, p)
		}
	}()
	ast, err := cc.Translate(config, []cc.Source{
		{Name: "<predefined>", Value: c.Predefined}, // cc requires these two names
		{Name: "<builtin>", Value: cc.Builtin},
		{Name: name, Value: usual(text)},
	})
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", name, err)
	}
	return converted(ast, name), nil
}
