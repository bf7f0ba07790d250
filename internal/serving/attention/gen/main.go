// Gen writes the assembly of package attention with avo, and the declarations of
// its functions:
//
//	go run ./internal/serving/attention/gen -o internal/serving/attention
//
// It also writes the loops of package testkit/benchtest. A test of this command fails if the generated files are out of
// date. Every function of package attention takes a pointer to a struct of type args, which has its arguments and
// results. The function reads and writes the fields at the offsets below. A test compares the offsets with the type. In
// the comments of the generators, an argument is a field of this struct, and n, for example, is the field at offset
// atN. Not all comments list inputStride and outStride, the numbers of bytes from one row of input or out to the next.
package main

import (
	"fmt"
	"strings"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/serving/assembly"
)

const (
	atInput        = 0
	atInputStride  = 8
	atData         = 16
	atOut          = 24
	atOutStride    = 32
	atN            = 40
	atSize         = 48
	atGroups       = 56
	atSumSize      = 64 // each function uses at most one of these four, which are the same field
	atFirstSum     = 64
	atOffset       = 64
	atBypass       = 64
	atFlag         = 72
	atX            = 80
	atY            = 84
	atZ            = 88
	atCount        = 96
	atBuffer       = 104
	atPrefetchList = 112
	atLow          = 120
	atRemaining    = 128
)

const (
	chunkBytes = 32 * 4           // a chunk of float32
	panelBytes = 512 * chunkBytes // one chunk of all values of a partition
	tileTokens = 16
	tileBytes  = tileTokens * 4
)

func main() { assembly.Main(generate) }

func generate() (map[string][]byte, error) {
	const command = "llmmemory/internal/serving/attention/gen"
	files, stubs := map[string][]byte{}, ""
	for _, w := range []width{avx512, avx512vnni, avx2} {
		for _, part := range partsOf(w) {
			g := &gen{asm: build.NewContext(), width: w, known: map[string]operand.Mem{}}
			part.write(g)
			text, declarations, err := assembly.Compile(g.asm, command, "attention")
			if err != nil {
				return nil, fmt.Errorf("%s for %s: %w", part.name, w.name, err)
			}
			if part.name == "loops" {
				files[fmt.Sprintf("../../testkit/benchtest/loops_%s_amd64.s", w.name)] = text
				continue
			}
			files[fmt.Sprintf("%s_%s_amd64.s", part.name, w.name)] = text
			stubs += strings.ReplaceAll(declarations, "*byte", "*args")
		}
	}
	var err error
	files["kernels_stubs_amd64.go"], err = assembly.GoFile(command, "package attention", stubs)
	return files, err
}

// A part is a generated file of an instruction set.
type part struct {
	name  string
	write func(*gen)
}

// partsOf lists the files that contain the functions of an instruction set. In place of a function that the instruction
// set lacks, the package uses the function of AVX2 or, with VNNI, of AVX-512.
func partsOf(w width) []part {
	if w.vnni {
		return []part{{"integers", integers}}
	}
	parts := []part{
		{"panel", panels}, {"weights", weights}, {"logits", logits}, {"scores", tileScores}, {"values", tileValues},
		{"loops", loops},
	}
	if w.wide() {
		return parts
	}
	return append(parts, []part{
		{"convert", converts}, {"integers", integers}, {"narrow", narrows}, {"transpose", transposes},
	}...)
}

// A gen generates one file for one instruction set. It does not embed the context, because the compiler would take 10 s
// to give gen the 3,000 methods of the context.
type gen struct {
	asm *build.Context
	width
	labels int
	known  map[string]operand.Mem
	args   reg.Register

	// onStack declares the functions noescape, so that callers can keep args on the stack. Functions that are called
	// through a table do not need it: their args escape to the heap all the same.
	onStack bool
}

// begin begins a function. It appends the instruction set's suffix to the name.
func (g *gen) begin(name string) {
	g.function(name, "func(a *byte)")
	if g.onStack {
		g.asm.Pragma("noescape")
	}
	g.args = g.param("a")
}

func (g *gen) function(name, signature string) {
	g.asm.Function(name + g.suffix)
	g.asm.Attributes(attr.NOSPLIT)
	g.asm.SignatureExpr(signature)
}

func (g *gen) param(name string) reg.GPVirtual {
	r := g.asm.GP64()
	g.asm.Load(g.asm.Param(name), r)
	return r
}

func (g *gen) end() {
	g.asm.VZEROUPPER()
	g.asm.RET()
}

func (g *gen) constant(name string, bits uint32) operand.Mem {
	name += g.suffix
	if _, ok := g.known[name]; !ok {
		g.known[name] = g.asm.ConstData(name, operand.U32(bits))
	}
	return g.known[name]
}

func (g *gen) arg(offset int) reg.GPVirtual {
	r := g.asm.GP64()
	g.asm.MOVQ(operand.Mem{Base: g.args, Disp: offset}, r)
	return r
}

func (g *gen) argMem(offset int) operand.Mem { return operand.Mem{Base: g.args, Disp: offset} }

// loop repeats body n times, at least once. It changes n.
func (g *gen) loop(n reg.GPVirtual, body func()) {
	label := g.label("loop")
	g.asm.Label(label)
	body()
	g.asm.DECQ(n)
	g.asm.JNZ(operand.LabelRef(label))
}

// An advance is a pointer and the number of bytes by which each iteration of a loop advances it.
type advance struct {
	pointer reg.Register
	bytes   int
}

// tiles emits a loop over n tiles. A tile of float32 fills one register with AVX-512 and two registers with AVX2. For
// each of these registers, tiles calls body with the index v of the register in the tile, and the offset in bytes of
// its numbers from the beginning of the tile. After each tile, the loop advances pointers.
func (g *gen) tiles(n reg.GPVirtual, body func(v, offset int), pointers ...advance) {
	g.loop(n, func() {
		for v := range tileTokens / g.lanes {
			body(v, v*g.bytes())
		}
		for _, p := range pointers {
			g.asm.ADDQ(operand.I32(p.bytes), p.pointer)
		}
	})
}

func (g *gen) label(name string) string {
	g.labels++
	return fmt.Sprintf("%s%d", name, g.labels)
}

func (g *gen) copyOf(r reg.Register) reg.GPVirtual {
	c := g.asm.GP64()
	g.asm.MOVQ(r, c)
	return c
}

func mem(base reg.Register, disp int) operand.Mem { return operand.Mem{Base: base, Disp: disp} }

// loops generates the functions read and multiply. read only reads memory, and multiply only multiplies. Package
// testkit/benchtest measures the limits of a processor with them.
func loops(g *gen) {
	// n is a number of bytes, a multiple of 512.
	g.function("read", "func(p *byte, n int)")
	p, n := g.param("p"), g.param("n")
	g.asm.SHRQ(operand.U8(9), n)
	g.zeros(8)
	g.loop(n, func() {
		for i := range 512 / g.bytes() {
			g.asm.VADDPS(mem(p, i*g.bytes()), g.regs[i%8], g.regs[i%8])
		}
		g.asm.ADDQ(operand.I32(512), p)
	})
	g.end()

	// multiply runs n rounds. Each round adds 24 products to 12 sums.
	g.function("multiply", "func(n int)")
	n = g.param("n")
	g.zeros(12)
	g.loop(n, func() {
		for i := range 24 {
			g.asm.VFMADD231PS(g.regs[13], g.regs[14], g.regs[i%12])
		}
	})
	g.end()
}
