package main

import (
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// weights are the kernels of the softmax, on one row.
func weights(g *gen) {
	scale(g)
	softmax(g)
	multiply(g)
	combine(g)
	ask(g)
}

// ask asks for the cache lines at n addresses, which are in data.
func ask(g *gen) {
	g.begin("ask")
	data, n, line := g.arg(atData), g.arg(atN), g.GP64()
	g.loop(n, func() {
		g.MOVQ(mem(data, 0), line)
		g.PREFETCHT0(mem(line, 0))
		g.ADDQ(operand.I32(8), data)
	})
	g.end()
}

// floats puts float32 constants of the file into memory, by bits.
func (g *gen) float(name string, v float32) operand.Mem {
	return g.constant(name, math.Float32bits(v))
}

// scale makes products into logits: x·product + y·(z + index). in: products; n:
// tiles.
func scale(g *gen) {
	g.begin("scale")
	in, n := g.arg(atIn), g.arg(atN)
	factor, slope, index, step, bias := 0, 1, 2, 3, 4
	g.VBROADCASTSS(g.argMem(atX), g.regs[factor])
	g.VBROADCASTSS(g.argMem(atY), g.regs[slope])
	g.VBROADCASTSS(g.argMem(atZ), g.regs[index])
	iota := g.counting("iota", 16)
	g.VADDPS(iota, g.regs[index], g.regs[index])
	g.VBROADCASTSS(g.float("eight", float32(g.lanes)), g.regs[step])
	g.loop(n, func() {
		for v := range 16 / g.lanes {
			g.VMULPS(g.regs[index], g.regs[slope], g.regs[bias])
			g.VMOVUPS(mem(in, v*g.bytes()), g.regs[bias+1])
			g.VFMADD213PS(g.regs[bias], g.regs[factor], g.regs[bias+1])
			g.VMOVUPS(g.regs[bias+1], mem(in, v*g.bytes()))
			g.VADDPS(g.regs[step], g.regs[index], g.regs[index])
		}
		g.ADDQ(operand.I32(tileTokens*4), in)
	})
	g.end()
}

// counting is the numbers 0 to n-1 in memory.
func (g *gen) counting(name string, n int) operand.Mem {
	m := g.StaticGlobal(name + g.suffix)
	g.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := range n {
		g.AddDatum(4*i, operand.U32(math.Float32bits(float32(i))))
	}
	return m
}

// Coefficients of e^x on ±ln 2 / 2 (Cephes, expf), to about one unit in the last
// place. 1.5·2^23 rounds to an integer, whose bits are then the lowest.
const (
	log2e      = 1.44269504088896341
	ln2High    = 0.693359375
	ln2Low     = -2.12194440e-4
	roundMagic = 12582912
	minimum    = -87.336544 // e^x below is no normal number
)

var expCoefficients = []float32{1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1}

// softmax makes logits into weights. in: logits; n: tiles. It leaves the largest
// logit in x and the sum of weights in y.
func softmax(g *gen) {
	g.begin("softmax")
	k := softmaxKernel{gen: g, vecs: 16 / g.lanes, top: 0, sum: 2, x: 4, t: 5, y: 6, magic: 7, c: 8, spare: 12}
	k.largest()
	for v := range k.vecs {
		g.zero(k.sum + v)
	}
	k.load()
	in, n := g.arg(atIn), g.arg(atN)
	g.loop(n, func() {
		for v := range k.vecs {
			k.exp(in, v)
		}
		g.ADDQ(operand.I32(tileTokens*4), in)
	})
	if k.vecs == 2 {
		g.VADDPS(g.regs[k.sum+1], g.regs[k.sum], g.regs[k.sum])
	}
	g.horizontal(k.sum, k.t, g.VADDPS)
	g.VMOVSS(quarters[k.sum], g.argMem(atY))
	g.end()
}

// A softmaxKernel knows its registers by number.
type softmaxKernel struct {
	*gen
	vecs            int // registers of a tile
	top, sum        int // largest logit; vecs sums of weights
	x, t, y         int
	magic, c, spare int // constants; c are three, spare is the first of the rest
	constants       []operand.Mem
}

// largest finds the largest logit.
func (k *softmaxKernel) largest() {
	g := k.gen
	g.VBROADCASTSS(g.float("negInf", float32(math.Inf(-1))), g.regs[k.top])
	in, n := g.arg(atIn), g.arg(atN)
	g.loop(n, func() {
		for v := range k.vecs {
			g.VMAXPS(mem(in, v*g.bytes()), g.regs[k.top], g.regs[k.top])
		}
		g.ADDQ(operand.I32(tileTokens*4), in)
	})
	g.horizontal(k.top, k.t, g.VMAXPS)
	g.VMOVSS(quarters[k.top], g.argMem(atX))
	g.VBROADCASTSS(quarters[k.top], g.regs[k.top])
	// Where all logits are -inf, subtract 0: the weights are 0 then.
	some := g.label("some")
	g.VUCOMISS(g.float("negInf2", float32(math.Inf(-1))), quarters[k.top])
	g.JNE(operand.LabelRef(some))
	g.JP(operand.LabelRef(some))
	g.zero(k.top)
	g.Label(some)
}

// load puts constants into registers: some in AVX2, all in AVX-512.
func (k *softmaxKernel) load() {
	g := k.gen
	g.VBROADCASTSS(g.float("magic", roundMagic), g.regs[k.magic])
	for i, f := range []float32{log2e, -ln2High, -ln2Low} {
		g.VBROADCASTSS(g.float([]string{"log2e", "ln2High", "ln2Low"}[i], f), g.regs[k.c+i])
	}
	for i, f := range append(append([]float32{}, expCoefficients...), 1, minimum) {
		k.constants = append(k.constants, g.float([]string{"c0", "c1", "c2", "c3", "c4", "c5", "one", "minimum"}[i], f))
	}
	if g.wide() {
		k.spare = 16
		for i, m := range k.constants {
			g.VBROADCASTSS(m, g.regs[k.spare+i])
		}
	}
}

// constant is a register with a constant.
func (k *softmaxKernel) constant(i int) reg.VecPhysical {
	if k.wide() {
		return k.regs[k.spare+i]
	}
	k.VBROADCASTSS(k.constants[i], k.regs[k.spare])
	return k.regs[k.spare]
}

// exp makes a register of logits into weights and adds them to their sum.
func (k *softmaxKernel) exp(in reg.Register, v int) {
	g, x, t, y, c := k.gen, k.x, k.t, k.y, k.c
	g.VMOVUPS(mem(in, v*g.bytes()), g.regs[x])
	g.VSUBPS(g.regs[k.top], g.regs[x], g.regs[x])
	g.VMOVAPS(g.regs[x], g.regs[t])
	g.VFMADD213PS(g.regs[k.magic], g.regs[c], g.regs[t]) // t = x·log2e + magic
	g.VSUBPS(g.regs[k.magic], g.regs[t], g.regs[y])      // y = the power of 2
	g.VMOVAPS(g.regs[x], g.regs[11])
	g.VFMADD231PS(g.regs[y], g.regs[c+1], g.regs[x])
	g.VFMADD231PS(g.regs[y], g.regs[c+2], g.regs[x]) // x = the rest
	g.VMOVAPS(k.constant(0), g.regs[y])
	for i := 1; i < 6; i++ {
		g.VFMADD213PS(k.constant(i), g.regs[x], g.regs[y])
	}
	g.VMULPS(g.regs[x], g.regs[x], g.regs[13])
	g.VFMADD213PS(g.regs[x], g.regs[13], g.regs[y])
	g.VADDPS(k.constant(6), g.regs[y], g.regs[y])
	g.VPSLLD(operand.U8(23), g.regs[t], g.regs[t])
	g.VPADDD(g.regs[t], g.regs[y], g.regs[y])
	g.keepNotLess(11, k.constant(7), y)
	g.VMOVUPS(g.regs[y], mem(in, v*g.bytes()))
	g.VADDPS(g.regs[y], g.regs[k.sum+v], g.regs[k.sum+v])
}

// keepNotLess makes lanes of y 0 where x is less than the limit; NaN is not.
func (g *gen) keepNotLess(x int, limit reg.VecPhysical, y int) {
	if g.wide() {
		g.VCMPPS(operand.U8(5), limit, g.regs[x], reg.K1)
		g.VMOVAPS_Z(g.regs[y], reg.K1, g.regs[y])
		return
	}
	g.VCMPPS(operand.U8(5), limit, g.regs[x], g.regs[x])
	g.VANDPS(g.regs[x], g.regs[y], g.regs[y])
}

// horizontal combines the lanes of a register into its first: lane i with i+8,
// then i+4, i+2, i+1.
func (g *gen) horizontal(r, spare int, op func(...operand.Op)) {
	if g.wide() {
		g.VEXTRACTF64X4(operand.U8(1), g.regs[r], halves[spare])
		op(halves[spare], halves[r], halves[r])
	}
	g.VEXTRACTF128(operand.U8(1), halves[r], quarters[spare])
	op(quarters[spare], quarters[r], quarters[r])
	g.VPSHUFD(operand.U8(0x4e), quarters[r], quarters[spare])
	op(quarters[spare], quarters[r], quarters[r])
	g.VPSHUFD(operand.U8(0xb1), quarters[r], quarters[spare])
	op(quarters[spare], quarters[r], quarters[r])
}

// multiply is in *= data over n tiles.
func multiply(g *gen) {
	g.begin("multiply")
	in, data, n := g.arg(atIn), g.arg(atData), g.arg(atN)
	g.loop(n, func() {
		for v := range 16 / g.lanes {
			g.VMOVUPS(mem(in, v*g.bytes()), g.regs[0])
			g.VMULPS(mem(data, v*g.bytes()), g.regs[0], g.regs[0])
			g.VMOVUPS(g.regs[0], mem(in, v*g.bytes()))
		}
		g.ADDQ(operand.I32(tileTokens*4), in)
		g.ADDQ(operand.I32(tileTokens*4), data)
	})
	g.end()
}

// combine is in = in·x + data·y over n tiles.
func combine(g *gen) {
	g.begin("combine")
	in, data, n := g.arg(atIn), g.arg(atData), g.arg(atN)
	g.VBROADCASTSS(g.argMem(atX), g.regs[0])
	g.VBROADCASTSS(g.argMem(atY), g.regs[1])
	g.loop(n, func() {
		for v := range 16 / g.lanes {
			g.VMULPS(mem(in, v*g.bytes()), g.regs[0], g.regs[2])
			g.VFMADD231PS(mem(data, v*g.bytes()), g.regs[1], g.regs[2])
			g.VMOVUPS(g.regs[2], mem(in, v*g.bytes()))
		}
		g.ADDQ(operand.I32(tileTokens*4), in)
		g.ADDQ(operand.I32(tileTokens*4), data)
	})
	g.end()
}
