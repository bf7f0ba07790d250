package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// ahead is how many tiles before its use a tile is asked for: about 8 KB.
func (d dtype) ahead() int { return max(2, 4/d.bytes) }

// far is how many tiles before its use a tile is asked for the first time, into a
// cache that is further away.
func (d dtype) far() int { return 2 * d.ahead() }

// tileScores are the kernels that multiply a few rows with keys where they lie.
func tileScores(g *gen) {
	for _, d := range dtypes {
		for _, n := range g.tileRows {
			tileScore(g, d, n)
		}
	}
}

// tileScore computes products of n rows with tiles of keys, and asks for the
// tiles that come next. in: queries; data: addresses of tiles, and of those that
// are read after them;
// out: products; n: tiles, an even number; size: elements of a head. out and n are
// used up.
func tileScore(g *gen, d dtype, n int) {
	g.begin(fmt.Sprintf("scoresTile%s%d", d.name, n))
	perStep := 1 // tiles
	if g.wide() {
		perStep = 2
	}
	in, list := g.arg(atIn), g.arg(atData)
	acc, keys, bcast := 0, 2*n, 2*n+4
	constant, nan, magnitude := len(g.regs)-1, len(g.regs)-2, len(g.regs)-3
	if !g.wide() {
		bcast, keys = 2*n+2, 2*n
	}
	checked := d.name == "E4M3"
	g.constants(d, constant)
	if checked {
		g.zero(nan)
		m := g.constant("magnitude", 0x7f7f7f7f)
		g.VPBROADCASTD(m, g.regs[magnitude])
	}
	step := g.label("step")
	g.Label(step)
	{
		var key, next, far [2]reg.GPVirtual
		for v := range perStep {
			key[v], next[v], far[v] = g.GP64(), g.GP64(), g.GP64()
			g.MOVQ(mem(list, 8*v), key[v])
			g.MOVQ(mem(list, 8*(v+d.ahead())), next[v])
			g.MOVQ(mem(list, 8*(v+d.far())), far[v])
		}
		for i := range 2 * n {
			g.zero(acc + i)
		}
		line := tileTokens * d.bytes // bytes of an element of all keys
		end := g.arg(atSize)
		g.IMUL3Q(operand.U8(line), end, end)
		g.MOVQ(end, g.argMem(atCount))
		at := g.GP64()
		g.XORQ(at, at)
		q := g.newRows(in, atInStride, n)
		again := g.label("elements")
		g.Label(again)
		for v := range perStep {
			for disp := 0; disp < 4*line; disp += 64 {
				g.PREFETCHT0(operand.Mem{Base: next[v], Index: at, Scale: 1, Disp: disp})
				g.PREFETCHT2(operand.Mem{Base: far[v], Index: at, Scale: 1, Disp: disp})
			}
			if checked {
				g.checkNaN(operand.Mem{Base: key[v], Index: at, Scale: 1}, 4*line, nan, magnitude, bcast)
			}
		}
		for j := 0; j < 4; j += 2 {
			g.tileElements(d, n, j, line, key, at, q, acc, keys, bcast, constant)
		}
		g.advance(q, 16)
		g.ADDQ(operand.I32(4*line), at)
		g.CMPQ(at, g.argMem(atCount))
		g.JLT(operand.LabelRef(again))
		o := g.newRows(g.arg(atOut), atOutStride, n)
		for row := range n {
			for v := range 2 {
				g.VMOVUPS(g.regs[acc+2*row+v], o.at(row, v*g.bytes()))
			}
		}
		g.ADDQ(operand.I32(perStep*tileTokens*4), g.argMem(atOut))
		g.ADDQ(operand.I32(8*perStep), list)
		g.SUBQ(operand.U8(perStep), g.argMem(atN))
		g.JNZ(operand.LabelRef(step))
	}
	if checked {
		g.foundNaNWide(nan, magnitude)
	}
	g.end()
}

// tileElements multiplies elements j and j+1.
func (g *gen) tileElements(d dtype, n, j, line int, key [2]reg.GPVirtual, at reg.Register, q *rows, acc, keys, bcast, constant int) {
	if g.wide() {
		for v := range 2 {
			g.loadPair(d, operand.Mem{Base: key[v], Index: at, Scale: 1, Disp: j * line}, keys+v, keys+2+v, constant)
		}
	}
	for e := range 2 {
		k := keys + 2*e
		if !g.wide() {
			k = keys
			g.loadPair(d, operand.Mem{Base: key[0], Index: at, Scale: 1, Disp: (j + e) * line}, keys, keys+1, constant)
		}
		for row := range n {
			b := g.regs[bcast+row%2]
			if !g.wide() {
				b = g.regs[bcast]
			}
			g.VBROADCASTSS(q.at(row, 4*(j+e)), b)
			for v := range 2 {
				g.VFMADD231PS(b, g.regs[k+v], g.regs[acc+2*row+v])
			}
		}
	}
}

// checkNaN keeps the largest magnitudes of n bytes in register nan.
func (g *gen) checkNaN(m operand.Mem, n, nan, magnitude, spare int) {
	for at := 0; at < n; at += g.bytes() {
		m := m
		m.Disp += at
		if g.wide() {
			g.VPANDD(m, g.regs[magnitude], g.regs[spare])
		} else {
			g.VPAND(m, g.regs[magnitude], g.regs[spare])
		}
		g.VPMAXUB(g.regs[spare], g.regs[nan], g.regs[nan])
	}
}

// foundNaNWide is foundNaN for a whole register.
func (g *gen) foundNaNWide(nan, magnitude int) {
	if !g.wide() {
		g.foundNaN(nan, magnitude)
		return
	}
	bits := g.GP64()
	g.VPCMPEQB(g.regs[magnitude], g.regs[nan], reg.K1)
	g.KMOVQ(reg.K1, bits)
	hit := g.GP32()
	g.XORL(hit, hit)
	g.TESTQ(bits, bits)
	g.SETNE(hit.As8L())
	g.MOVL(hit, g.argMem(atFlag))
}

// tileValues are the kernels that sum p·v over values where they lie.
func tileValues(g *gen) {
	for _, d := range dtypes {
		for _, n := range g.tileRows {
			tileValue(g, d, n)
		}
	}
}

// tileValue adds p·v to n rows, and asks for the tiles that come next. in:
// weights of the first token; data: addresses of tiles, and of those after them;
// out: sums; n: tokens; first: place of the first token in its tile; size:
// elements of a head, a multiple of 16. in, data, n and first are used up.
func tileValue(g *gen, d dtype, n int) {
	g.begin(fmt.Sprintf("valuesTile%s%d", d.name, n))
	row := g.arg(atSize) // bytes of a value
	if d.bytes > 1 {
		g.SHLQ(operand.U8(d.bytes/2), row)
	}
	constant, nan, magnitude := len(g.regs)-1, len(g.regs)-2, len(g.regs)-3
	checked := d.name == "E4M3"
	g.constants(d, constant)
	if checked {
		g.zero(nan)
		m := g.constant("magnitude", 0x7f7f7f7f)
		g.VPBROADCASTD(m, g.regs[magnitude])
	}
	k := valueKernel{d: d, n: n, constant: constant, nan: nan, magnitude: magnitude, checked: checked, row: row}
	done, tile := g.label("done"), g.label("tile")
	g.Label(tile)
	g.tileCount(done)
	k.values, k.next, k.far = g.GP64(), g.GP64(), g.GP64()
	list, place := g.arg(atData), g.arg(atFirst)
	g.MOVQ(mem(list, 0), k.values)
	g.MOVQ(mem(list, 8*d.ahead()), k.next)
	g.MOVQ(mem(list, 8*d.far()), k.far)
	g.IMULQ(row, place)
	g.ADDQ(place, k.values)
	g.ADDQ(place, k.next)
	g.ADDQ(place, k.far)
	g.tilePasses(&k)
	in := g.arg(atCount)
	g.SHLQ(operand.U8(2), in)
	g.ADDQ(in, g.argMem(atIn))
	g.ADDQ(operand.U8(8), g.argMem(atData))
	g.MOVQ(operand.I32(0), g.argMem(atFirst))
	g.JMP(operand.LabelRef(tile))
	g.Label(done)
	if checked {
		g.foundNaNWide(nan, magnitude)
	}
	g.end()
}

// tileCount sets count to the tokens of the next tile and takes them off n. It
// jumps if none is left.
func (g *gen) tileCount(done string) {
	left, count := g.arg(atN), g.GP64()
	g.TESTQ(left, left)
	g.JZ(operand.LabelRef(done))
	g.MOVQ(operand.I32(tileTokens), count)
	g.SUBQ(g.argMem(atFirst), count)
	g.CMPQ(left, count)
	g.CMOVQLT(left, count)
	g.SUBQ(count, left)
	g.MOVQ(left, g.argMem(atN))
	g.MOVQ(count, g.argMem(atCount))
}

type valueKernel struct {
	d                        dtype
	n                        int
	constant, nan, magnitude int
	checked                  bool
	values, next, far, row   reg.GPVirtual
}

// tilePasses goes over the elements of a tile, as many at a time as fit into
// registers.
func (g *gen) tilePasses(k *valueKernel) {
	vecs := 4
	if k.n > 4 || !g.wide() {
		vecs = 2
	}
	elements, to := g.arg(atSize), g.arg(atOut)
	sizes := []int{vecs}
	if vecs != 16/g.lanes {
		sizes = append(sizes, 16/g.lanes)
	}
	for _, size := range sizes {
		pass, done := g.label("pass"), g.label("passed")
		g.Label(pass)
		g.CMPQ(elements, operand.I32(size*g.lanes))
		g.JLT(operand.LabelRef(done))
		g.tilePass(k, size, to)
		for _, p := range []reg.Register{k.values, k.next, k.far} {
			g.ADDQ(operand.I32(size*g.lanes*k.d.bytes), p)
		}
		g.ADDQ(operand.I32(size*g.bytes()), to)
		g.SUBQ(operand.I32(size*g.lanes), elements)
		g.JMP(operand.LabelRef(pass))
		g.Label(done)
	}
}

// tilePass adds some registers of elements over all tokens of a tile.
func (g *gen) tilePass(k *valueKernel, vecs int, to reg.Register) {
	n := k.n
	acc, values, bcast := 0, n*vecs, n*vecs+vecs
	g.sums(n, vecs, to, 0, true)
	at, count := g.GP64(), g.arg(atCount)
	g.XORQ(at, at)
	p := g.newRows(g.arg(atIn), atInStride, n)
	size := vecs * g.lanes * k.d.bytes
	g.loop(count, func() {
		for line := 0; line < size; line += 64 {
			g.PREFETCHT0(operand.Mem{Base: k.next, Index: at, Scale: 1, Disp: line})
			g.PREFETCHT2(operand.Mem{Base: k.far, Index: at, Scale: 1, Disp: line})
		}
		if vecs == 1 {
			g.load(k.d, operand.Mem{Base: k.values, Index: at, Scale: 1}, values, k.constant)
		}
		for v := 0; v+1 < vecs; v += 2 {
			g.loadPair(k.d, operand.Mem{Base: k.values, Index: at, Scale: 1, Disp: v * g.lanes * k.d.bytes}, values+v, values+v+1, k.constant)
		}
		if k.checked {
			g.checkRow(operand.Mem{Base: k.values, Index: at, Scale: 1}, size, k, bcast)
		}
		for row := range n {
			g.VBROADCASTSS(p.at(row, 0), g.regs[bcast])
			for v := range vecs {
				g.VFMADD231PS(g.regs[bcast], g.regs[values+v], g.regs[acc+row*vecs+v])
			}
		}
		g.advance(p, 4)
		g.ADDQ(k.row, at)
	})
	g.sums(n, vecs, to, 0, false)
}

// checkRow is checkNaN for 16, 32 or 64 bytes.
func (g *gen) checkRow(value operand.Mem, size int, k *valueKernel, spare int) {
	switch {
	case size >= g.bytes():
		g.checkNaN(value, size, k.nan, k.magnitude, spare)
	case size == 32:
		g.VPANDD(value, halves[k.magnitude], halves[spare])
		g.VPMAXUB(g.regs[spare], g.regs[k.nan], g.regs[k.nan])
	case g.wide():
		g.VPANDD(value, quarters[k.magnitude], quarters[spare])
		g.VPMAXUB(g.regs[spare], g.regs[k.nan], g.regs[k.nan])
	default:
		g.VPAND(value, quarters[k.magnitude], quarters[spare])
		g.VPMAXUB(g.regs[spare], g.regs[k.nan], g.regs[k.nan])
	}
}
