// Package assembly has the code that the assembly generators of packages attention and matrix share.
package assembly

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/format"
	"log"
	"os"
	"path/filepath"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
	"github.com/mmcloughlin/avo/reg"
)

// Main is the main function of a generator. It writes the generated files to the folder given by flag -o.
func Main(generate func() (map[string][]byte, error)) {
	out := flag.String("o", ".", "`folder` of the package")
	flag.Parse()
	files, err := generate()
	if err != nil {
		log.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(*out, name), text, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// Outdated returns the names of the generated files that differ from those in folder, and of the assembly files in
// folder that are not generated.
func Outdated(files map[string][]byte, folder string) (names []string, err error) {
	for name, want := range files {
		have, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(want, have) {
			names = append(names, name)
		}
	}
	present, err := filepath.Glob(filepath.Join(folder, "*_amd64.s"))
	for _, path := range present {
		if name := filepath.Base(path); files[name] == nil {
			names = append(names, name)
		}
	}
	return names, err
}

// Compile returns the functions of a context as assembly for package pkg, and their Go declarations. The files name
// command as their generator.
func Compile(asm *build.Context, command, pkg string) (text, declarations []byte, err error) {
	file, err := asm.Result()
	if err != nil {
		var list build.ErrorList
		if errors.As(err, &list) {
			return nil, nil, list[0]
		}
		return nil, nil, err
	}
	if err := pass.Compile.Execute(file); err != nil {
		return nil, nil, err
	}
	if err := pass.InstructionPass(encode).Execute(file); err != nil {
		return nil, nil, err
	}
	config := printer.Config{Name: command, Pkg: pkg}
	if text, err = printer.NewGoAsm(config).Print(file); err != nil {
		return nil, nil, err
	}
	declarations, err = declare(file, config)
	return text, declarations, err
}

func declare(file *ir.File, config printer.Config) ([]byte, error) {
	text, err := printer.NewStubs(config).Print(file)
	if err != nil {
		return nil, err
	}
	return format.Source(text)
}

// Rows computes the addresses of rows at equal distances.
type Rows struct {
	Base, base6         reg.Register // of row 0 and, from seven rows on, of row 6
	stride, three, five reg.Register // one, three and five times the distance
}

// NewRows addresses n rows, at most 12, the first at base. stride loads the distance between rows in bytes; it is
// called only if n > 1.
func NewRows(asm *build.Context, base reg.Register, stride func() reg.Register, n int) *Rows {
	r := &Rows{Base: base}
	if n > 1 {
		r.stride = stride()
	}
	if n > 3 {
		r.three = asm.GP64()
		asm.LEAQ(operand.Mem{Base: r.stride, Index: r.stride, Scale: 2}, r.three)
	}
	if n > 5 {
		r.five = asm.GP64()
		asm.LEAQ(operand.Mem{Base: r.stride, Index: r.stride, Scale: 4}, r.five)
	}
	if n > 6 {
		r.base6 = asm.GP64()
		asm.LEAQ(operand.Mem{Base: r.Base, Index: r.three, Scale: 2}, r.base6)
	}
	return r
}

// At returns the address of a byte of a row.
func (r *Rows) At(row, byte int) operand.Mem {
	m := operand.Mem{Base: r.Base, Disp: byte}
	if row >= 6 {
		m.Base = r.base6
	}
	switch row %= 6; row {
	case 1, 2, 4:
		m.Index, m.Scale = r.stride, uint8(row)
	case 3:
		m.Index, m.Scale = r.three, 1
	case 5:
		m.Index, m.Scale = r.five, 1
	}
	return m
}

// From addresses at most six rows at the same distance, the first at base.
func (r *Rows) From(base reg.Register) *Rows {
	return &Rows{Base: base, stride: r.stride, three: r.three, five: r.five}
}

// Advance adds bytes to the address of every row.
func (r *Rows) Advance(asm *build.Context, bytes operand.Op) {
	asm.ADDQ(bytes, r.Base)
	if r.base6 != nil {
		asm.ADDQ(bytes, r.base6)
	}
}

// LoadFloats loads numbers of type dtype (F32, F16, BF16 or Int8) from m and converts them to float32 in r.
func LoadFloats(asm *build.Context, dtype string, m operand.Mem, r reg.Register) {
	switch dtype {
	case "F32":
		asm.VMOVUPS(m, r)
	case "F16":
		asm.VCVTPH2PS(m, r)
	case "BF16":
		asm.VPMOVZXWD(m, r)
		asm.VPSLLD(operand.U8(16), r, r)
	case "Int8":
		asm.VPMOVSXBD(m, r)
		asm.VCVTDQ2PS(r, r)
	default:
		panic(fmt.Sprintf("assembly: no type %q", dtype))
	}
}
