package ctree

import (
	"errors"
	"fmt"
	"os"

	"modernc.org/cc/v4"
)

// ErrUnknown is wrapped if a header does not declare a name.
var ErrUnknown = errors.New("not declared")

// A Header is a parsed and type-checked C header.
type Header struct {
	path string
	ast  *cc.AST
}

// A Field is a member of a struct. Offset and Size are in bytes.
type Field struct {
	Name   string
	Offset int64
	Size   int64
}

// A Struct is the layout of a struct type. Size and Align are in bytes.
type Struct struct {
	Fields []Field
	Size   int64
	Align  int
}

// ParseHeader parses the header at path as the installed C compiler would. An #include "..." is
// also searched in the folders of include.
func ParseHeader(path string, include ...string) (*Header, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	compiler, err := AskCompiler()
	if err != nil {
		return nil, err
	}
	config, err := compiler.config(include...)
	if err != nil {
		return nil, err
	}
	config.EvalAllMacros = true // Constant needs the values
	ast, err := translate(config, path, text)
	if err != nil {
		return nil, err
	}
	return &Header{path: path, ast: ast}, nil
}

// Struct returns the layout of the struct with the given tag or typedef name.
func (h *Header) Struct(name string) (Struct, error) {
	for _, node := range h.ast.Scope.Nodes[name] {
		var typ cc.Type
		switch n := node.(type) {
		case *cc.Declarator:
			typ = n.Type()
		case *cc.StructOrUnionSpecifier:
			typ = n.Type()
		default:
			continue
		}
		if s, ok := typ.Undecay().(*cc.StructType); ok && !s.IsIncomplete() {
			return layout(s), nil
		}
	}
	return Struct{}, fmt.Errorf("%s: struct %s: %w", h.path, name, ErrUnknown)
}

func layout(s *cc.StructType) Struct {
	l := Struct{Size: s.Size(), Align: s.Align()}
	for i := range s.NumFields() {
		f := s.FieldByIndex(i)
		l.Fields = append(l.Fields, Field{Name: f.Name(), Offset: f.Offset(), Size: f.Type().Size()})
	}
	return l
}

// Constant returns the value of an integer macro or of an enumerator at file scope.
func (h *Header) Constant(name string) (int64, error) {
	for _, node := range h.ast.Scope.Nodes[name] {
		if e, ok := node.(*cc.Enumerator); ok {
			return integer(e.Value(), h.path, name)
		}
	}
	if m := h.ast.Macros[name]; m != nil {
		return integer(m.Value(), h.path, name)
	}
	return 0, fmt.Errorf("%s: constant %s: %w", h.path, name, ErrUnknown)
}

func integer(v cc.Value, path, name string) (int64, error) {
	switch v := v.(type) {
	case cc.Int64Value:
		return int64(v), nil
	case cc.UInt64Value:
		return int64(v), nil
	}
	return 0, fmt.Errorf("%s: constant %s: %w", path, name, ErrUnknown)
}

// Prototypes returns the types of the functions that the header itself declares, by name. It
// leaves out those of its includes.
func (h *Header) Prototypes() map[string]string {
	found := map[string]string{}
	for name, nodes := range h.ast.Scope.Nodes {
		for _, node := range nodes {
			d, ok := node.(*cc.Declarator)
			if ok && d.Type().Kind() == cc.Function && d.Position().Filename == h.path {
				found[name] = d.Type().String()
			}
		}
	}
	return found
}
