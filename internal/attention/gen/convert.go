package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/assembly"
)

// A dtype is a type of keys and values. Loads of e4m3 are 2^-8 times the number.
type dtype struct {
	name  string
	bytes int
}

var dtypes = []dtype{{"F32", 4}, {"F16", 2}, {"BF16", 2}, {"E4M3", 1}, {"E5M2", 1}, {"Int8", 1}}

var float16 = dtypes[1]

// constants loads what the conversion of a type needs into register k.
func (g *gen) constants(d dtype, k int) {
	if d.name == "E4M3" {
		g.spread16("e4m3", 0xbfff, k)
	}
}

func (g *gen) spread16(name string, word uint32, k int) {
	m := g.constant(name, word|word<<16)
	g.asm.VPBROADCASTD(m, g.regs[k])
}

// load reads one register of numbers into i. k is the register of constants.
func (g *gen) load(d dtype, m operand.Mem, i, k int) {
	r := g.regs[i]
	switch d.name {
	case "E4M3":
		g.asm.VPMOVSXBW(m, g.half[i])
		g.asm.VPSLLW(operand.U8(7), g.half[i], g.half[i])
		g.and(lower(g, k), g.half[i])
		g.asm.VCVTPH2PS(g.half[i], r)
	case "E5M2":
		g.asm.VPMOVZXBW(m, g.half[i])
		g.asm.VPSLLW(operand.U8(8), g.half[i], g.half[i])
		g.asm.VCVTPH2PS(g.half[i], r)
	default:
		assembly.LoadFloats(g.asm, d.name, m, r)
	}
}

func lower(g *gen, k int) reg.VecPhysical { return g.half[k] }

func (g *gen) and(mask, r reg.VecPhysical) {
	if g.wide() {
		g.asm.VPANDD(mask, r, r)
		return
	}
	g.asm.VPAND(mask, r, r)
}

// loadPair reads two registers of numbers that lie side by side.
func (g *gen) loadPair(d dtype, m operand.Mem, i, j, k int) {
	next := m
	next.Disp += g.lanes * d.bytes
	if !g.wide() || d.name != "E4M3" && d.name != "E5M2" {
		g.load(d, m, i, k)
		g.load(d, next, j, k)
		return
	}
	if d.name == "E4M3" {
		g.asm.VPMOVSXBW(m, g.regs[j])
		g.asm.VPSLLW(operand.U8(7), g.regs[j], g.regs[j])
		g.asm.VPANDD(g.regs[k], g.regs[j], g.regs[j])
	} else {
		g.asm.VPMOVZXBW(m, g.regs[j])
		g.asm.VPSLLW(operand.U8(8), g.regs[j], g.regs[j])
	}
	g.asm.VCVTPH2PS(g.half[j], g.regs[i])
	g.asm.VEXTRACTI64X4(operand.U8(1), g.regs[j], g.half[j])
	g.asm.VCVTPH2PS(g.half[j], g.regs[j])
}

// converts are the kernels that unpack numbers to float32.
func converts(g *gen) {
	for _, d := range dtypes {
		convert(g, d)
	}
}

// convert unpacks n rows of a chunk of numbers, inStride bytes apart, to rows
// without gaps. flag becomes the bits of a NaN if a number is NaN or infinite,
// else of 0; of e4m3, whose NaNs are read as numbers, not 0 if there is one.
func convert(g *gen, d dtype) {
	g.begin("convert" + d.name)
	in, stride, out, n := g.arg(atIn), g.arg(atInStride), g.arg(atOut), g.arg(atN)
	sum, zero, k, factor, nan, mask := 12, 13, 14, 15, 11, 10
	g.zero(sum)
	g.zero(zero)
	g.constants(d, k)
	if d.name == "E4M3" {
		g.asm.VBROADCASTSS(g.float("unpacked", 256), g.regs[factor])
		g.zero(nan)
		m := g.constant("magnitude", 0x7f7f7f7f)
		g.asm.VPBROADCASTD(m, halves[mask])
	}
	g.loop(n, func() {
		for v := 0; v < 32/g.lanes; v += 2 {
			g.loadPair(d, mem(in, v*g.lanes*d.bytes), v, v+1, k)
		}
		if d.name == "E4M3" {
			g.asm.VPAND(mem(in, 0), halves[mask], halves[9])
			g.asm.VPMAXUB(halves[9], halves[nan], halves[nan])
		}
		for v := range 32 / g.lanes {
			if d.name == "E4M3" {
				g.asm.VMULPS(g.regs[factor], g.regs[v], g.regs[v])
			}
			g.asm.VMOVUPS(g.regs[v], mem(out, v*g.bytes()))
			g.asm.VFMADD231PS(g.regs[zero], g.regs[v], g.regs[sum])
		}
		g.asm.ADDQ(stride, in)
		g.asm.ADDQ(operand.I32(chunkBytes), out)
	})
	if d.name == "E4M3" {
		g.foundNaN(nan, 9)
	} else {
		g.horizontal(sum, 0, g.asm.VADDPS)
		bits := g.asm.GP32()
		g.asm.VMOVD(quarters[sum], bits)
		g.asm.SHLL(operand.U8(1), bits) // without the sign
		g.asm.MOVL(bits, g.argMem(atFlag))
	}
	g.end()
}

// foundNaN sets flag if a byte of the lower half of a register is 0x7f.
func (g *gen) foundNaN(r, spare int) {
	m := g.constant("nan8", 0x7f7f7f7f)
	g.asm.VPBROADCASTD(m, halves[spare])
	g.asm.VPCMPEQB(halves[spare], halves[r], halves[r])
	bits := g.asm.GP32()
	g.asm.VPMOVMSKB(halves[r], bits)
	g.asm.MOVL(bits, g.argMem(atFlag))
}

// checkNaN keeps the largest magnitudes of n bytes in register nan.
func (g *gen) checkNaN(m operand.Mem, n, nan, magnitude, spare int) {
	for at := 0; at < n; at += g.bytes() {
		m := m
		m.Disp += at
		if g.wide() {
			g.asm.VPANDD(m, g.regs[magnitude], g.regs[spare])
		} else {
			g.asm.VPAND(m, g.regs[magnitude], g.regs[spare])
		}
		g.asm.VPMAXUB(g.regs[spare], g.regs[nan], g.regs[nan])
	}
}

// foundNaNWide is foundNaN for a whole register.
func (g *gen) foundNaNWide(nan, magnitude int) {
	if !g.wide() {
		g.foundNaN(nan, magnitude)
		return
	}
	bits := g.asm.GP64()
	g.asm.VPCMPEQB(g.regs[magnitude], g.regs[nan], reg.K1)
	g.asm.KMOVQ(reg.K1, bits)
	hit := g.asm.GP32()
	g.asm.XORL(hit, hit)
	g.asm.TESTQ(bits, bits)
	g.asm.SETNE(hit.As8L())
	g.asm.MOVL(hit, g.argMem(atFlag))
}
