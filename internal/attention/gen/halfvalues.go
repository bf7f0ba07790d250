package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// sumsBytes is the float32 sums of a row in room: of 256 elements, those of each 64 in
// the order in which halfLoad reads them.
const sumsBytes = 256 * 4

// halfValues are the kernels that sum p·v in float16 over the tokens of a tile.
func halfValues(g *gen) {
	for _, d := range []string{"E4M3", "E5M2", "Int8", words} {
		for _, n := range g.halfRows {
			halfValue(g, d, n)
		}
	}
}

type halfValueKernel struct {
	d                      string
	n                      int
	values, next, far, row reg.GPVirtual
}

// halfValue makes sums of p·v of n rows in room, and asks for the tiles that come
// next. in: weights of the first token, as pair makes them; data: addresses of tiles,
// and of those after them; n: tokens; first: place of the first token in its tile;
// size: elements of a head, of words a multiple of 64. in, data, n and first are used up.
func halfValue(g *gen, d string, n int) {
	g.begin(fmt.Sprintf("valuesTile%s%d", d, n))
	k := halfValueKernel{d: d, n: n, row: g.arg(atSize)}
	if d == words {
		g.asm.SHLQ(operand.U8(1), k.row)
	} else {
		g.tailMask()
	}
	g.halfConstants(d)
	g.clearSums(n)
	done, tile := g.label("done"), g.label("tile")
	g.asm.Label(tile)
	g.tileCount(done)
	k.values, k.next, k.far = g.asm.GP64(), g.asm.GP64(), g.asm.GP64()
	list, place := g.arg(atData), g.arg(atFirst)
	g.asm.IMULQ(k.row, place)
	g.asm.MOVQ(mem(list, 0), k.values)
	g.asm.ADDQ(place, k.values)
	if d != words {
		g.asm.MOVQ(mem(list, 8*e4m3.ahead()), k.next)
		g.asm.MOVQ(mem(list, 8*e4m3.far()), k.far)
		g.asm.ADDQ(place, k.next)
		g.asm.ADDQ(place, k.far)
	}
	g.halfPasses(&k)
	g.nextValueTile(tile)
	g.asm.Label(done)
	if d == "E4M3" {
		g.foundNaNWide(halfNaN, halfMagnitude)
	}
	g.end()
}

// tailMask sets K1 to the bytes of a value after the last whole 64.
func (g *gen) tailMask() {
	tail, mask := g.arg(atSize), g.asm.GP64()
	g.asm.ANDQ(operand.U8(63), tail)
	g.asm.MOVQ(operand.I32(-1), mask)
	g.asm.BZHIQ(tail, mask, mask)
	g.asm.KMOVQ(mask, reg.K1)
}

func (g *gen) clearSums(n int) {
	room := g.arg(atRoom)
	g.zero(0)
	for at := 0; at < n*sumsBytes; at += 64 {
		g.asm.VMOVUPS(g.regs[0], mem(room, at))
	}
}

// halfPasses goes over the elements of a tile: 128 at a time, then 64, then those that
// are left.
func (g *gen) halfPasses(k *halfValueKernel) {
	left, to := g.arg(atSize), g.arg(atRoom)
	pass, one, tail, done := g.label("pass"), g.label("one"), g.label("tail"), g.label("passed")
	g.asm.Label(pass)
	g.asm.CMPQ(left, operand.I32(128))
	g.asm.JLT(operand.LabelRef(one))
	g.halfPass(k, 2, false, to)
	g.nextPieces(k, 2, to)
	g.asm.SUBQ(operand.I32(128), left)
	g.asm.JMP(operand.LabelRef(pass))
	g.asm.Label(one)
	g.asm.CMPQ(left, operand.I32(64))
	g.asm.JLT(operand.LabelRef(tail))
	g.halfPass(k, 1, false, to)
	if k.d != words {
		g.nextPieces(k, 1, to)
		g.asm.SUBQ(operand.I32(64), left)
	}
	g.asm.Label(tail)
	if k.d != words {
		g.asm.TESTQ(left, left)
		g.asm.JZ(operand.LabelRef(done))
		g.halfPass(k, 1, true, to)
	}
	g.asm.Label(done)
}

// nextPieces moves to the next elements, in pieces of 64.
func (g *gen) nextPieces(k *halfValueKernel, pieces int, to reg.Register) {
	g.asm.ADDQ(operand.I32(pieces*256), to)
	if k.d == words {
		g.asm.ADDQ(operand.I32(pieces*128), k.values)
		return
	}
	for _, p := range []reg.Register{k.values, k.next, k.far} {
		g.asm.ADDQ(operand.I32(pieces*64), p)
	}
}

// halfPass adds pieces of 64 elements over all tokens of a tile.
func (g *gen) halfPass(k *halfValueKernel, pieces int, masked bool, to reg.Register) {
	n, vecs := k.n, 2*pieces
	values, weight := n*vecs, n*vecs+vecs
	for i := range n * vecs {
		g.zero(i)
	}
	at, count := g.asm.GP64(), g.arg(atCount)
	g.asm.XORQ(at, at)
	p := g.newRows(g.arg(atIn), atInStride, n)
	g.loop(count, func() {
		for piece := range pieces {
			if k.d == words {
				g.halfLoad(k.d, operand.Mem{Base: k.values, Index: at, Scale: 1, Disp: 128 * piece}, values+2*piece, values+2*piece+1, false)
				continue
			}
			g.asm.PREFETCHT0(operand.Mem{Base: k.next, Index: at, Scale: 1, Disp: 64 * piece})
			g.asm.PREFETCHT2(operand.Mem{Base: k.far, Index: at, Scale: 1, Disp: 64 * piece})
			g.halfLoad(k.d, operand.Mem{Base: k.values, Index: at, Scale: 1, Disp: 64 * piece}, values+2*piece, values+2*piece+1, masked)
		}
		for row := range n {
			x := weight + row%2
			g.asm.VPBROADCASTD(p.at(row, 0), g.regs[x])
			for v := range vecs {
				g.fma(row*vecs+v, values+v, x)
			}
		}
		g.advance(p, 4)
		g.asm.ADDQ(k.row, at)
	})
	for row := range n {
		for v := range vecs {
			g.widenSum(row*vecs+v, values, operand.Mem{Base: to, Disp: row*sumsBytes + v*128})
		}
	}
}

// widenSum adds a register of float16 to float32 in memory.
func (g *gen) widenSum(r, spare int, m operand.Mem) {
	for part := range 2 {
		if part == 1 {
			g.asm.VEXTRACTI64X4(operand.U8(1), g.regs[r], g.half[r])
			m.Disp += 64
		}
		x := g.regs[spare+part]
		g.asm.VCVTPH2PS(g.half[r], x)
		g.asm.VADDPS(m, x, x)
		g.asm.VMOVUPS(x, m)
	}
}
