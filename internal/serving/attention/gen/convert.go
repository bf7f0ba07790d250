package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/serving/assembly"
)

type dtype struct {
	name  string
	bytes int
}

var (
	// directTypes are the types that one instruction or two convert to float32. eightBitTypes are converted to float16
	// first.
	directTypes   = []dtype{{"F32", 4}, {"F16", 2}, {"BF16", 2}, int8s}
	eightBitTypes = []dtype{{"E4M3", 1}, {"E5M2", 1}}
	int8s         = dtype{"Int8", 1}
)

func (g *gen) and(mask, r reg.VecPhysical) {
	if g.wide() {
		g.asm.VPANDD(mask, r, r)
		return
	}
	g.asm.VPAND(mask, r, r)
}

func converts(g *gen) {
	g.onStack = true
	for _, d := range directTypes {
		convert(g, d)
	}
	halve(g, "E4M3")
	halve(g, "E5M2")
}

// convert generates the kernel that converts n rows to float32. A row has the 32 numbers of a chunk. The rows in the
// array input are inputStride bytes apart. The kernel writes the rows to out without gaps. It multiplies numbers of
// float16 by argument x. It sets flag to 0 if all numbers are finite, and to another value otherwise.
func convert(g *gen, d dtype) {
	g.begin("convert" + d.name)
	input, stride, out, n := g.arg(atInput), g.arg(atInputStride), g.arg(atOut), g.arg(atN)
	const sum, zero = 8, 12 // one sum for each register of a row, so that additions need not wait for each other
	for i := sum; i <= zero; i++ {
		g.zero(i)
	}
	factor := g.regs[zero+1]
	if d.name == "F16" {
		g.asm.VBROADCASTSS(g.argMem(atX), factor)
	}
	g.loop(n, func() {
		for v := range 32 / g.lanes {
			assembly.LoadFloats(g.asm, d.name, mem(input, v*g.lanes*d.bytes), g.regs[v])
			if d.name == "F16" {
				g.asm.VMULPS(factor, g.regs[v], g.regs[v])
			}
		}
		for v := range 32 / g.lanes {
			g.asm.VMOVUPS(g.regs[v], mem(out, v*g.bytes()))
			g.asm.VFMADD231PS(g.regs[zero], g.regs[v], g.regs[sum+v])
		}
		g.asm.ADDQ(stride, input)
		g.asm.ADDQ(operand.I32(chunkBytes), out)
	})
	for v := 1; v < 32/g.lanes; v++ {
		g.asm.VADDPS(g.regs[sum+v], g.regs[sum], g.regs[sum])
	}
	g.horizontal(sum, 0, g.asm.VADDPS)
	bits := g.asm.GP32()
	g.asm.VMOVD(quarters[sum], bits)
	g.asm.SHLL(operand.U8(1), bits) // without the sign
	g.asm.MOVL(bits, g.argMem(atFlag))
	g.end()
}

// A halveKernel has the numbers of its registers.
type halveKernel struct {
	*gen
	e4m3                 bool
	x, bits              int // numbers, and their bits without the sign
	mask, nan, magnitude int // E4M3 only
}

// halve generates the kernel that converts n numbers of 8 bits to float16. n is a multiple of 16. Argument input has
// the address of the 8-bit numbers, and argument out has the address to which the kernel writes the results.
//
// The bits of an E5M2 number are the upper 8 bits of the same number in float16. For an E4M3 number, the kernel copies
// sign, exponent and fraction to their places in a float16. The exponent bias of float16 is 15 and that of E4M3 is 7,
// so the float16 is 2^-8 of the E4M3 number.
//
// An E4M3 NaN becomes a finite float16, because the largest exponent of E4M3 is not the largest exponent of float16.
// For E4M3, the kernel therefore sets flag: to 0 if no number is NaN, and to another value otherwise.
func halve(g *gen, name string) {
	g.begin("halve" + name)
	k := halveKernel{gen: g, e4m3: name == "E4M3", x: 0, bits: 1, mask: 2, nan: 3, magnitude: 4}
	input, out, n := g.arg(atInput), g.arg(atOut), g.arg(atN)
	if k.e4m3 {
		g.asm.VPBROADCASTD(g.constant("e4m3", 0xbfffbfff), g.regs[k.mask])
		g.asm.VPBROADCASTD(g.constant("nan8", 0x7f7f7f7f), g.regs[k.magnitude])
		g.zero(k.nan)
	}
	many, rest, one, done := g.label("many"), g.label("rest"), g.label("one"), g.label("done")
	g.asm.Label(many)
	g.asm.SUBQ(operand.U8(64), n)
	g.asm.JLT(operand.LabelRef(rest))
	for offset := 0; offset < 64; offset += 2 * g.lanes {
		k.halve(mem(input, offset), mem(out, 2*offset), g.regs, g.half)
	}
	g.asm.ADDQ(operand.U8(64), input)
	g.asm.ADDQ(operand.I32(128), out)
	g.asm.JMP(operand.LabelRef(many))
	g.asm.Label(rest)
	g.asm.ADDQ(operand.U8(64), n)
	g.asm.Label(one)
	g.asm.SUBQ(operand.U8(16), n)
	g.asm.JLT(operand.LabelRef(done))
	k.halve(mem(input, 0), mem(out, 0), halves, quarters)
	g.asm.ADDQ(operand.U8(16), input)
	g.asm.ADDQ(operand.U8(32), out)
	g.asm.JMP(operand.LabelRef(one))
	g.asm.Label(done)
	if k.e4m3 {
		bits := g.asm.GP32()
		g.asm.VPCMPEQB(g.half[k.magnitude], g.half[k.nan], g.half[k.nan])
		g.asm.VPMOVMSKB(g.half[k.nan], bits)
		g.asm.MOVL(bits, g.argMem(atFlag))
	}
	g.end()
}

// halve emits the code that converts 8-bit numbers at address input to float16 and writes them to address out. The code
// uses the given registers. It converts as many numbers as fill one of these registers with float16. lower[i] is the
// lower half of registers[i]. For E4M3, the code also updates register nan.
func (k *halveKernel) halve(input, out operand.Mem, registers, lower []reg.VecPhysical) {
	g, x := k.gen, registers[k.x]
	if k.e4m3 {
		g.asm.VPMOVSXBW(input, x)
		g.asm.VPSLLW(operand.U8(7), x, x)
		g.asm.VPAND(registers[k.mask], x, x)
		g.asm.VPAND(input, lower[k.magnitude], lower[k.bits])
		g.asm.VPMAXUB(g.half[k.bits], g.half[k.nan], g.half[k.nan])
	} else {
		g.asm.VPMOVZXBW(input, x)
		g.asm.VPSLLW(operand.U8(8), x, x)
	}
	g.asm.VMOVUPS(x, out)
}

func narrows(g *gen) {
	g.onStack = true
	narrow(g, "F16", func(i int) {
		g.asm.VCVTPS2PH(operand.U8(0), g.regs[i], g.half[i])
	})
	narrow(g, "BF16", func(i int) { g.roundBF16(i) })
}

// narrow generates the kernel that converts 16·n float32 to a smaller type. This type is F16 or BF16, as the parameter
// name says. Argument input has the address of the float32, and out has the address of the results. round emits the
// code that rounds the numbers of register i to nearest, ties to even, and leaves the results in the lower half of the
// register.
func narrow(g *gen, name string, round func(i int)) {
	g.begin("narrow" + name)
	input, out, n := g.arg(atInput), g.arg(atOut), g.arg(atN)
	if name == "BF16" {
		g.broadcast("one", 1, 8)
		g.broadcast("half", 0x7fff, 9)
		g.broadcast("quiet", 0x40, 10)
	}
	g.tiles(n, func(_, offset int) {
		g.asm.VMOVUPS(mem(input, offset), g.regs[0])
		round(0)
		g.asm.VMOVDQU(quarters[0], mem(out, offset/2))
	}, advance{input, tileBytes}, advance{out, tileBytes / 2})
	g.end()
}

func (g *gen) broadcast(name string, bits uint32, i int) {
	g.asm.VPBROADCASTD(g.constant(name, bits), g.regs[i])
}

// roundBF16 emits the code that converts the float32 in register i to BF16, and leaves the results in the lower half of
// the register. A signalling NaN becomes a quiet NaN.
func (g *gen) roundBF16(i int) {
	x, increment, nan := g.regs[i], g.regs[1], g.regs[2]
	g.asm.VPSRLD(operand.U8(16), x, nan)
	g.asm.VPAND(g.regs[8], nan, increment)
	g.asm.VPOR(g.regs[10], nan, nan)
	g.asm.VCMPPS(operand.U8(3), x, x, g.regs[3])
	g.asm.VPADDD(g.regs[9], increment, increment)
	g.asm.VPADDD(increment, x, x)
	g.asm.VPSRLD(operand.U8(16), x, x)
	g.asm.VPBLENDVB(g.regs[3], nan, x, x)
	g.asm.VEXTRACTI128(operand.U8(1), x, quarters[1])
	g.asm.VPACKUSDW(quarters[1], quarters[i], quarters[i])
}
