package main

import (
	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/serving/assembly"
)

const (
	f32  = "F32"
	f16  = "F16"
	bf16 = "BF16"
)

var sizes = map[string]int{f32: 4, f16: 2, bf16: 2}

// panel is the number of outputs with interleaved weights. A panel has the weights of input 0 for all its outputs, then
// those of input 1, and so on.
const panel = 64

// A width is a size of vector registers. name is the instruction set that has such registers, bytes is the size of a
// register, and reg allocates a register.
type width struct {
	name  string
	bytes int
	reg   func() VecVirtual
}

var (
	avx2   = width{"AVX2", 32, func() VecVirtual { return asm.YMM() }}
	avx512 = width{"AVX512", 64, func() VecVirtual { return asm.ZMM() }}
)

func (w width) regs(n int) []VecVirtual {
	regs := make([]VecVirtual, n)
	for i := range regs {
		regs[i] = w.reg()
	}
	return regs
}

func ymms(n int) []VecVirtual { return avx2.regs(n) }

func zmms(n int) []VecVirtual { return avx512.regs(n) }

func begin(name, signature string) {
	asm.Function(name)
	asm.Attributes(attr.NOSPLIT)
	asm.SignatureExpr(signature)
}

func end() {
	asm.VZEROUPPER()
	asm.RET()
}

func arg(name string) Register { return asm.Load(asm.Param(name), asm.GP64()) }

func rowsOf(pointer, stride string, n int) *assembly.Rows {
	return assembly.NewRows(asm, arg(pointer), func() Register { return arg(stride) }, n)
}

func address(name string) Mem {
	b, err := asm.Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

// loop emits a loop that runs body, at least once, until register count is 0. Each iteration subtracts step from
// count.
func loop(label string, count Register, step int, body func()) {
	asm.Label(label)
	body()
	asm.SUBQ(U32(uint32(step)), count)
	asm.JNZ(LabelRef(label))
}
