package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// halfSum is how many products a lane of float16 adds up: 64 elements in four lanes.
const halfSum = 16

// halfScores are the kernels that multiply queries with keys in float16.
func halfScores(g *gen) {
	for _, d := range []string{"E4M3", "E5M2", words} {
		for _, n := range g.halfRows {
			halfScore(g, d, n)
		}
	}
}

// halfKernel computes products of n rows with two tiles. Register
// 4·row + 2·tile has the first 8 tokens of the tile, in four lanes for elements
// 0, 4, ... to 3, 7, ..., the next register the other 8.
type halfKernel struct {
	d              string
	n, keys, query int // rows, and registers
	line           int // bytes of four elements of a tile
	key, next, far [2]reg.GPVirtual
	list, at       reg.GPVirtual
}

// halfScore computes products of n rows with tiles of keys, and asks for the tiles
// that come next. in: queries as expand makes them; data: addresses of tiles, and of
// those that are read after them; out: products; n: tiles, an even number; size:
// elements of a head. out and n are used up.
func halfScore(g *gen, d string, n int) {
	g.begin(fmt.Sprintf("scoresTile%s%d", d, n))
	k := halfKernel{d: d, n: n, keys: 16, query: 20, line: 4 * tileTokens}
	if d == words {
		k.line *= 2
	}
	g.halfConstants(d)
	k.list = g.arg(atData)
	step := g.label("step")
	g.asm.Label(step)
	g.halfStep(&k)
	g.asm.ADDQ(operand.I32(2*tileTokens*4), g.argMem(atOut))
	g.asm.ADDQ(operand.I32(16), k.list)
	g.asm.SUBQ(operand.U8(2), g.argMem(atN))
	g.asm.JNZ(operand.LabelRef(step))
	if d == "E4M3" {
		g.foundNaNWide(halfNaN, halfMagnitude)
	}
	g.end()
}

// halfStep computes the products with the next two tiles.
func (g *gen) halfStep(k *halfKernel) {
	for v := range 2 {
		k.key[v] = g.asm.GP64()
		g.asm.MOVQ(mem(k.list, 8*v), k.key[v])
		if k.d != words {
			k.next[v], k.far[v] = g.asm.GP64(), g.asm.GP64()
			g.asm.MOVQ(mem(k.list, 8*(v+e4m3.ahead())), k.next[v])
			g.asm.MOVQ(mem(k.list, 8*(v+e4m3.far())), k.far[v])
		}
	}
	all := g.arg(atSize)
	g.asm.IMUL3Q(operand.U8(k.line/4), all, all)
	g.asm.MOVQ(all, g.argMem(atFirst))
	k.at = g.asm.GP64()
	g.asm.XORQ(k.at, k.at)
	q := g.newRows(g.arg(atIn), atInStride, k.n)
	sum, again := g.label("sum"), g.label("elements")
	g.asm.Label(sum)
	for i := range 4 * k.n {
		g.zero(i)
	}
	end := g.asm.GP64()
	g.asm.LEAQ(mem(k.at, halfSum*k.line), end)
	g.asm.CMPQ(end, g.argMem(atFirst))
	g.asm.CMOVQGT(g.argMem(atFirst), end)
	g.asm.MOVQ(end, g.argMem(atCount))
	g.asm.Label(again)
	g.halfElements(k, q)
	g.asm.ADDQ(operand.I32(k.line), k.at)
	g.asm.CMPQ(k.at, g.argMem(atCount))
	g.asm.JLT(operand.LabelRef(again))
	g.fold(k.n)
	g.addFolded(k)
	g.asm.CMPQ(k.at, g.argMem(atFirst))
	g.asm.JLT(operand.LabelRef(sum))
}

// halfElements multiplies the next four elements.
func (g *gen) halfElements(k *halfKernel, q *rows) {
	for v := range 2 {
		if k.d != words {
			g.asm.PREFETCHT0(operand.Mem{Base: k.next[v], Index: k.at, Scale: 1})
			g.asm.PREFETCHT2(operand.Mem{Base: k.far[v], Index: k.at, Scale: 1})
		}
		g.halfLoad(k.d, operand.Mem{Base: k.key[v], Index: k.at, Scale: 1}, k.keys+2*v, k.keys+2*v+1, false)
	}
	for row := range k.n {
		x := k.query + row%2
		g.asm.VMOVDQU64(q.at(row, 0), g.regs[x])
		for v := range 4 {
			g.fma(4*row+v, k.keys+v, x)
		}
	}
	g.advance(q, 64)
}

// fold adds the four lanes of each sum, 0 to 2 and 1 to 3 and then these, and leaves
// 16 products of a row with a tile as float32 in register 2·row + tile.
func (g *gen) fold(n int) {
	const x, y, pairs = 20, 21, 16
	shuffle := func(order uint8, a, b, to int) {
		g.asm.VSHUFF64X2(operand.U8(order), g.regs[b], g.regs[a], g.regs[to])
	}
	for v := range 2 {
		for row := range n {
			a := 4*row + 2*v
			shuffle(0x44, a, a+1, x)
			shuffle(0xee, a, a+1, y)
			g.fp16(vaddph, a, x, y)
		}
		for row := 0; row < n; row += 2 {
			a, b := 4*row+2*v, 4*min(row+1, n-1)+2*v
			shuffle(0x88, a, b, x)
			shuffle(0xdd, a, b, y)
			g.fp16(vaddph, pairs+row+v, x, y)
		}
	}
	for row := range n {
		for v := range 2 {
			both := pairs + row&^1 + v
			if row%2 == 1 {
				g.asm.VEXTRACTI64X4(operand.U8(1), g.regs[both], g.half[both])
			}
			g.asm.VCVTPH2PS(g.half[both], g.regs[2*row+v])
		}
	}
}

// addFolded adds the folded sums to the products, or stores them if they are the
// first.
func (g *gen) addFolded(k *halfKernel) {
	o := g.newRows(g.arg(atOut), atOutStride, k.n)
	store := g.label("store")
	g.asm.CMPQ(k.at, operand.I32(halfSum*k.line))
	g.asm.JLE(operand.LabelRef(store))
	for i := range 2 * k.n {
		g.asm.VADDPS(o.at(i/2, i%2*g.bytes()), g.regs[i], g.regs[i])
	}
	g.asm.Label(store)
	for i := range 2 * k.n {
		g.asm.VMOVUPS(g.regs[i], o.at(i/2, i%2*g.bytes()))
	}
}
