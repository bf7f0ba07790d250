package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/assembly"
)

// newRows addresses n rows from base on; their distance is in the field stride of the call.
func (g *gen) newRows(base reg.Register, stride, n int) *assembly.Rows {
	return assembly.NewRows(g.asm, g.copyOf(base), func() reg.Register { return g.arg(stride) }, n)
}

// panels are the kernels that read a partition which was unpacked to float32.
func panels(g *gen) {
	for _, n := range g.rows {
		panelScores(g, n, false)
	}
	for _, n := range g.rows {
		panelValues(g, n)
	}
}

// panelScores computes products of groups × n rows with some tiles of keys, two
// registers of tokens at a time. in: queries; data: keys; out: products; n: tiles;
// size: elements of a head; first: elements of a sum, a multiple of 4; ahead: addresses of
// 16·size bytes to prefetch, then 0. It changes n, and advances ahead. With integers an
// element is a pair of them, and all products are one sum.
func panelScores(g *gen, n int, integers bool) {
	name := "scoresPanel%d"
	if integers {
		name = "integersPanel%d"
	}
	g.begin(fmt.Sprintf(name, n))
	keys, out := g.arg(atData), g.arg(atOut)
	step, last, done := g.label("step"), g.label("last"), g.label("done")
	tiles := 1 // of two registers
	if g.wide() {
		tiles = 2
	}
	g.asm.Label(step)
	g.asm.SUBQ(operand.U8(tiles), g.argMem(atN))
	g.asm.JLT(operand.LabelRef(last))
	g.panelTiles(n, 2, integers, keys, out)
	for range tiles {
		g.nextTile(keys)
	}
	g.asm.ADDQ(operand.I32(tiles*tileTokens*4), out)
	g.asm.JMP(operand.LabelRef(step))
	g.asm.Label(last)
	if g.wide() {
		g.asm.ADDQ(operand.U8(1), g.argMem(atN))
		g.asm.JLT(operand.LabelRef(done))
		g.panelTiles(n, 1, integers, keys, out)
	}
	g.asm.Label(done)
	g.end()
}

// nextTile moves a pointer to keys to the next tile.
func (g *gen) nextTile(keys reg.Register) {
	step := g.arg(atSize)
	g.asm.SHLQ(operand.U8(6), step)
	g.asm.ADDQ(step, keys)
}

// panelTiles computes products of all groups of n rows with vecs registers of
// tokens: two tiles, or with AVX2 the halves of one.
func (g *gen) panelTiles(n, vecs int, integers bool, keys, out reg.Register) {
	in, groups, to := g.arg(atIn), g.arg(atGroups), g.copyOf(out)
	g.loop(groups, func() {
		k := [2]reg.GPVirtual{g.copyOf(keys), nil}
		half := g.bytes()
		if g.wide() {
			half = 0
			if vecs > 1 {
				k[1] = g.copyOf(keys)
				g.nextTile(k[1])
			}
		} else {
			k[1] = k[0]
		}
		g.asm.MOVQ(operand.I32(0), g.argMem(atCount))
		ahead := g.nextAhead(in)
		sum := g.label("sum")
		g.asm.Label(sum)
		g.panelSum(n, vecs, half, integers, k, in, ahead)
		g.addSums(n, vecs, to, 0, g.argMem(atCount), 0)
		done := g.arg(atFirst)
		g.asm.ADDQ(g.argMem(atCount), done)
		g.asm.MOVQ(done, g.argMem(atCount))
		g.asm.CMPQ(done, g.argMem(atSize))
		g.asm.JLT(operand.LabelRef(sum))
		g.nextGroup(in, atInStride, n)
		g.nextGroup(to, atOutStride, n)
	})
}

// nextAhead takes the next address from the list ahead, which 0 ends; after the
// end it is another address, which is in the cache.
func (g *gen) nextAhead(other reg.Register) reg.GPVirtual {
	list, after, ahead := g.arg(atAhead), g.asm.GP64(), g.asm.GP64()
	g.asm.LEAQ(mem(list, 8), after)
	g.asm.MOVQ(mem(list, 0), ahead)
	g.asm.TESTQ(ahead, ahead)
	g.asm.CMOVQEQ(other, ahead)
	g.asm.CMOVQNE(after, list)
	g.asm.MOVQ(list, g.argMem(atAhead))
	return ahead
}

// panelSum sums products over the next elements of a sum, or over those that are
// left, and asks for a cache line after each four of them.
func (g *gen) panelSum(n, vecs, half int, integers bool, k [2]reg.GPVirtual, in reg.Register, ahead reg.GPVirtual) {
	for i := range n * vecs {
		g.zero(i)
	}
	elements, done, from := g.arg(atSize), g.arg(atCount), g.asm.GP64()
	g.asm.LEAQ(operand.Mem{Base: in, Index: done, Scale: 4}, from)
	g.asm.SUBQ(done, elements)
	g.asm.CMPQ(elements, g.argMem(atFirst))
	g.asm.CMOVQGT(g.argMem(atFirst), elements)
	g.asm.SHRQ(operand.U8(2), elements)
	q := g.newRows(from, atInStride, n)
	g.loop(elements, func() {
		g.panelElements(n, vecs, half, integers, k, q)
		g.asm.PREFETCHT1(mem(ahead, 0))
		g.asm.ADDQ(operand.I32(64), ahead)
	})
	if integers {
		g.toFloat(n * vecs)
	}
}

// addSums adds n rows of sums to those at disp from an address. They are stored there
// instead if done is at most first.
func (g *gen) addSums(n, vecs int, to reg.Register, disp int, done operand.Op, first int) {
	store := g.label("store")
	g.asm.CMPQ(done, operand.I32(first))
	g.asm.JLE(operand.LabelRef(store))
	g.addRows(n, vecs, to, disp)
	g.asm.Label(store)
	g.sums(n, vecs, to, disp, false)
}

// addRows adds n rows in memory to the registers.
func (g *gen) addRows(n, vecs int, to reg.Register, disp int) {
	o := g.newRows(to, atOutStride, n)
	for row := range n {
		for v := range vecs {
			r := g.regs[row*vecs+v]
			g.asm.VADDPS(o.At(row, disp+v*g.bytes()), r, r)
		}
	}
}

// panelElements multiplies the next four elements.
func (g *gen) panelElements(n, vecs, half int, integers bool, k [2]reg.GPVirtual, q *assembly.Rows) {
	for j := range 4 {
		for v := range vecs {
			g.asm.VMOVUPS(mem(k[v], j*tileTokens*4+v*half), g.regs[n*vecs+v])
		}
		for row := range n {
			b := g.regs[n*vecs+vecs+row%2]
			g.asm.VBROADCASTSS(q.At(row, 4*j), b)
			for v := range vecs {
				if integers {
					g.dot(b, g.regs[n*vecs+v], g.regs[row*vecs+v], g.regs[n*vecs+vecs+2])
				} else {
					g.asm.VFMADD231PS(b, g.regs[n*vecs+v], g.regs[row*vecs+v])
				}
			}
		}
	}
	q.Advance(g.asm, operand.I32(16))
	g.asm.ADDQ(operand.I32(4*tileTokens*4), k[0])
	if g.wide() && vecs > 1 {
		g.asm.ADDQ(operand.I32(4*tileTokens*4), k[1])
	}
}

// nextGroup adds n strides to a pointer.
func (g *gen) nextGroup(p reg.Register, stride, n int) {
	s := g.arg(stride)
	g.asm.IMUL3Q(operand.U8(n), s, s)
	g.asm.ADDQ(s, p)
}

// panelValues adds p·v over n tokens to groups × n rows, chunk after chunk. in:
// weights; data: values; out: sums; n: tokens; size: chunks. If first is 0, the tokens go
// on with the sums, else they are summed apart and then added: first of them, and then
// those of a tile at a time.
func panelValues(g *gen, n int) {
	g.begin(fmt.Sprintf("valuesPanel%d", n))
	vecs := 2
	chunks := g.arg(atSize)
	data, out := g.arg(atData), g.arg(atOut)
	g.loop(chunks, func() {
		for part := range chunkBytes / (vecs * g.bytes()) {
			g.panelChunk(n, vecs, data, out, part*vecs*g.bytes())
		}
		g.asm.ADDQ(operand.I32(panelBytes), data)
		g.asm.ADDQ(operand.I32(chunkBytes), out)
	})
	g.end()
}

// panelChunk adds the elements of a chunk from disp on, in bytes.
func (g *gen) panelChunk(n, vecs int, data, out reg.Register, disp int) {
	in, to, groups := g.arg(atIn), g.copyOf(out), g.arg(atGroups)
	g.loop(groups, func() {
		for i := range n * vecs {
			g.zero(i)
		}
		left, next := g.arg(atN), g.arg(atFirst)
		apart, start := g.label("apart"), g.label("tokens")
		g.asm.TESTQ(next, next)
		g.asm.JNE(operand.LabelRef(apart))
		g.sums(n, vecs, to, disp, true)
		g.asm.MOVQ(left, next)
		g.asm.Label(apart)
		g.asm.MOVQ(left, g.argMem(atLeft))
		values, at := g.copyOf(data), g.copyOf(in)
		g.asm.Label(start)
		g.panelTokens(n, vecs, values, at, next, disp)
		g.addSums(n, vecs, to, disp, g.argMem(atFirst), 0)
		for i := range n * vecs {
			g.zero(i)
		}
		g.asm.MOVQ(operand.I32(tileTokens), next)
		g.asm.CMPQ(g.argMem(atLeft), operand.I32(0))
		g.asm.JNE(operand.LabelRef(start))
		g.nextGroup(in, atInStride, n)
		g.nextGroup(to, atOutStride, n)
	})
}

// panelTokens sums p·v over the next tokens, or over those that are left, and moves the
// pointers to values and weights after them. next is used up.
func (g *gen) panelTokens(n, vecs int, values, at, next reg.GPVirtual, disp int) {
	g.asm.CMPQ(next, g.argMem(atLeft))
	g.asm.CMOVQGT(g.argMem(atLeft), next)
	g.asm.SUBQ(next, g.argMem(atLeft))
	p := g.newRows(at, atInStride, n)
	g.asm.LEAQ(operand.Mem{Base: at, Index: next, Scale: 4}, at)
	g.loop(next, func() {
		for v := range vecs {
			g.asm.VMOVUPS(mem(values, disp+v*g.bytes()), g.regs[n*vecs+v])
		}
		for row := range n {
			b := g.regs[n*vecs+vecs+row%2]
			g.asm.VBROADCASTSS(p.At(row, 0), b)
			for v := range vecs {
				g.asm.VFMADD231PS(b, g.regs[n*vecs+v], g.regs[row*vecs+v])
			}
		}
		p.Advance(g.asm, operand.I32(4))
		g.asm.ADDQ(operand.I32(chunkBytes), values)
	})
}

// sums loads or stores the sums of n rows.
func (g *gen) sums(n, vecs int, to reg.Register, disp int, load bool) {
	o := g.newRows(to, atOutStride, n)
	for row := range n {
		for v := range vecs {
			at, r := o.At(row, disp+v*g.bytes()), g.regs[row*vecs+v]
			if load {
				g.asm.VMOVUPS(at, r)
			} else {
				g.asm.VMOVUPS(r, at)
			}
		}
	}
}
