package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/serving/assembly"
)

func tileValues(g *gen) {
	for _, d := range tileTypes(g.width) {
		for _, n := range g.tileRows {
			tileValue(g, d, n)
		}
	}
}

type valueKernel struct {
	*gen
	d                      dtype
	n, vecs                int            // rows; registers of elements at a time
	masks                  []reg.Register // AVX-512 only: for each register of elements but the first
	eight                  *eightBits
	values, next, far, row reg.GPVirtual // row: bytes of a value
}

// tileValue generates the kernel that reads values of type d directly from blocks. It adds p·v, the weight of a token
// times its value, to the sums of the given number of rows. Arguments:
//
//	input   the weights, beginning with the first token's
//	data    a list of addresses: first of the tiles with the tokens, then of the next tiles, to prefetch
//	n       the number of tokens
//	offset  the index of the first token in its tile
//	size    the number of elements of a value, a multiple of 16
//	out     the sums
//
// The kernel changes input, data, n and offset. It writes whole registers, so the sums of a row can take up to 48
// floats more than size.
func tileValue(g *gen, d dtype, rows int) {
	g.begin(fmt.Sprintf("values%sx%d", d.name, rows))
	k := valueKernel{gen: g, d: d, n: rows, vecs: 2, row: g.arg(atSize), eight: g.eightBits(d)}
	if g.wide() {
		if rows <= 4 {
			k.vecs = 4
		}
		k.masks = []reg.Register{reg.K1, reg.K2, reg.K3}[:k.vecs-1]
	}
	if d.bytes > 1 {
		g.asm.SHLQ(operand.U8(d.bytes/2), k.row)
	}
	done, tile := g.label("done"), g.label("tile")
	g.asm.Label(tile)
	g.tileCount(done)
	list, place := g.arg(atData), g.arg(atOffset)
	g.asm.IMULQ(k.row, place)
	address := func(i int) reg.GPVirtual {
		p := g.asm.GP64()
		g.asm.MOVQ(mem(list, 8*i), p)
		g.asm.ADDQ(place, p)
		return p
	}
	k.values, k.next, k.far = address(0), address(d.prefetchDistance()), address(d.farPrefetchDistance())
	k.passes()
	g.nextValueTile(tile)
	g.asm.Label(done)
	k.eight.end()
	g.end()
}

func (g *gen) nextValueTile(tile string) {
	weightBytes := g.arg(atCount)
	g.asm.SHLQ(operand.U8(2), weightBytes)
	g.asm.ADDQ(weightBytes, g.argMem(atInput))
	g.asm.ADDQ(operand.U8(8), g.argMem(atData))
	g.asm.MOVQ(operand.I32(0), g.argMem(atOffset))
	g.asm.JMP(operand.LabelRef(tile))
}

// tileCount emits the code that sets count to the number of tokens to read in the next tile, and subtracts this number
// from n. The code jumps to label done if n is 0.
func (g *gen) tileCount(done string) {
	rest, count := g.arg(atN), g.asm.GP64()
	g.asm.TESTQ(rest, rest)
	g.asm.JZ(operand.LabelRef(done))
	g.asm.MOVQ(operand.I32(tileTokens), count)
	g.asm.SUBQ(g.argMem(atOffset), count)
	g.asm.CMPQ(rest, count)
	g.asm.CMOVQLT(rest, count)
	g.asm.SUBQ(count, rest)
	g.asm.MOVQ(rest, g.argMem(atN))
	g.asm.MOVQ(count, g.argMem(atCount))
}

// passes emits a loop that adds p·v for all elements of a tile's values. Each iteration computes the elements that fit
// into k.vecs vector registers.
func (k *valueKernel) passes() {
	g, elementCount, out := k.gen, k.arg(atSize), k.arg(atOut)
	pass := g.label("pass")
	g.asm.Label(pass)
	if g.wide() {
		k.setMasks(elementCount)
	}
	k.pass(out, elementCount)
	bytes := k.vecs * g.lanes * k.d.bytes
	for _, p := range []reg.Register{k.values, k.next, k.far} {
		g.asm.ADDQ(operand.I32(bytes), p)
	}
	g.asm.ADDQ(operand.I32(k.vecs*g.bytes()), out)
	g.asm.SUBQ(operand.I32(k.vecs*g.lanes), elementCount)
	g.asm.JGT(operand.LabelRef(pass))
}

// setMasks emits the code that sets the masks for the next call of pass. Register elementCount has the number of
// elements that are not computed yet, a multiple of 16. They fill at least the first vector register, so this register
// needs no mask. In the masks of the other registers, the bits of elements beyond this number become 0. For E4M3 and
// E5M2, the code also sets two masks for 32 elements each: K4 for the first and K5 for the next.
func (k *valueKernel) setMasks(elementCount reg.Register) {
	g, bits, rest := k.gen, k.asm.GP64(), k.asm.GP64()
	g.asm.MOVQ(operand.I32(64), rest)
	g.asm.CMPQ(elementCount, rest)
	g.asm.CMOVQLT(elementCount, rest)
	g.asm.XORQ(bits, bits)
	g.asm.NOTQ(bits)
	g.asm.BZHIQ(rest, bits, bits)
	if k.eight != nil {
		g.asm.KMOVQ(bits, reg.K4)
		g.asm.KSHIFTRQ(operand.U8(32), reg.K4, reg.K5)
	}
	for _, m := range k.masks {
		g.asm.SHRQ(operand.U8(16), bits)
		g.asm.KMOVW(bits.As32(), m)
	}
}

// pass emits the code that adds p·v over the next count tokens of a tile, for as many elements as fit into k.vecs
// vector registers. Register elementCount has the number of elements that are not computed yet. If they fit into the
// first two vector registers, the code does not multiply the numbers in the others.
func (k *valueKernel) pass(out, elementCount reg.Register) {
	g, n := k.gen, k.n
	if k.d.name == "F32" { // the tokens of the tile are summed separately, and their sum is added to out
		g.zeros(k.vecs * n)
	} else {
		k.eachSum(out, g.asm.VMOVUPS)
	}
	offset, count := g.asm.GP64(), g.arg(atCount)
	g.asm.XORQ(offset, offset)
	p := g.newRows(g.arg(atInput), atInputStride, n)
	size := g.lanes * k.d.bytes
	g.loop(count, func() {
		for line := 0; line < k.vecs*size; line += 64 {
			g.asm.PREFETCHT0(operand.Mem{Base: k.next, Index: offset, Scale: 1, Disp: line})
			g.asm.PREFETCHT2(operand.Mem{Base: k.far, Index: offset, Scale: 1, Disp: line})
		}
		k.multiply(0, p, offset)
		if k.vecs > 2 {
			skip := g.label("skip")
			g.asm.CMPQ(elementCount, operand.I32(2*g.lanes))
			g.asm.JLE(operand.LabelRef(skip))
			k.multiply(2, p, offset)
			g.asm.Label(skip)
		}
		p.Advance(g.asm, operand.I32(4))
		g.asm.ADDQ(k.row, offset)
	})
	if k.d.name == "F32" {
		k.eachSum(out, func(operands ...operand.Op) { g.asm.VADDPS(operands[0], operands[1], operands[1]) })
	}
	k.eachSum(out, func(operands ...operand.Op) { g.asm.VMOVUPS(operands[1], operands[0]) })
}

// multiply emits the code that adds p·v of one token, for the elements in registers first and first+1. Register offset
// has the distance in bytes of the token's value from the first value that the kernel reads in the tile.
func (k *valueKernel) multiply(first int, p *assembly.Rows, offset reg.Register) {
	values := k.vecs * k.n
	bcast := values + k.vecs // the register with the weight of a row, or the first of k.n such registers
	spare := bcast + k.n
	for v := first; v < first+2; v++ {
		m := operand.Mem{Base: k.values, Index: offset, Scale: 1, Disp: v * k.lanes * k.d.bytes}
		switch {
		case k.eight == nil:
			k.loadFloats(k.d, m, v, k.regs[values+v])
		case v == first:
			mask := []reg.Register{reg.K4, reg.K5}[v/2]
			k.eight.check(m, spare, mask)
			k.eight.load(m, values+v, values+v+1, mask)
		}
	}
	for row := range k.n {
		b := k.regs[bcast]
		if k.vecs > 2 {
			b = k.regs[bcast+row]
		}
		if first == 0 {
			k.asm.VBROADCASTSS(p.At(row, 0), b)
		}
		for v := first; v < first+2; v++ {
			k.asm.VFMADD231PS(b, k.regs[values+v], k.regs[k.vecs*row+v])
		}
	}
}

func (k *valueKernel) eachSum(out reg.Register, emit func(...operand.Op)) {
	o := k.newRows(out, atOutStride, k.n)
	for row := range k.n {
		for v := range k.vecs {
			emit(o.At(row, v*k.bytes()), k.regs[k.vecs*row+v])
		}
	}
}

// loadFloats emits the code that loads numbers of type d from m, as float32, into register r. The parameter v counts
// the registers that a pass loads, from 0. With AVX-512, each register after the first has a mask: numbers whose bit in
// k.masks[v-1] is 0 become 0.
func (k *valueKernel) loadFloats(d dtype, m operand.Mem, v int, r reg.Register) {
	if v == 0 || !k.wide() {
		assembly.LoadFloats(k.asm, d.name, m, r)
		return
	}
	switch mask := k.masks[v-1]; d.name {
	case "F32":
		k.asm.VMOVUPS_Z(m, mask, r)
	case "F16":
		k.asm.VCVTPH2PS_Z(m, mask, r)
	case "BF16":
		k.asm.VPMOVZXWD_Z(m, mask, r)
		k.asm.VPSLLD(operand.U8(16), r, r)
	case "Int8":
		k.asm.VPMOVSXBD_Z(m, mask, r)
		k.asm.VCVTDQ2PS(r, r)
	}
}
