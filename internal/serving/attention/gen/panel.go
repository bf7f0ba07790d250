package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/serving/assembly"
)

// newRows prepares the addresses of n rows, the first of which is at base. The field of the call at offset stride
// has the distance between rows.
func (g *gen) newRows(base reg.Register, stride, n int) *assembly.Rows {
	return assembly.NewRows(g.asm, g.copyOf(base), func() reg.Register { return g.arg(stride) }, n)
}

// panels generates the kernels for a partition whose keys and values were converted to float32.
func panels(g *gen) {
	panelScores(g, g.rows, false)
	panelValues(g, g.rows)
}

// panelScores generates the kernel that multiplies groups × n rows of queries by tiles of keys. Argument in is the
// queries, data the keys, out the products, n the number of tiles, and size the elements of a head. first is a multiple
// of 4: after each first elements, the kernel adds their sum to out. ahead is a list of addresses, ended by 0. The
// kernel prefetches 16·size bytes at each address. The kernel changes n and advances ahead. With integers, an element
// is a pair of integers, and all products are added to one sum. AVX-512 takes two tiles at a time; if the number of
// tiles is odd, it takes the last tile twice.
func panelScores(g *gen, n int, integers bool) {
	name := "scoresPanel%d"
	if integers {
		name = "integersPanel%d"
	}
	g.begin(fmt.Sprintf(name, n))
	keys, out := g.arg(atData), g.arg(atOut)
	step := g.label("step")
	tiles := 2 * g.lanes / tileTokens
	g.asm.Label(step)
	g.panelTiles(n, integers, keys, out)
	for range tiles {
		g.nextTile(keys)
	}
	g.asm.ADDQ(operand.I32(tiles*tileBytes), out)
	g.asm.SUBQ(operand.U8(tiles), g.argMem(atN))
	g.asm.JGT(operand.LabelRef(step))
	g.end()
}

func (g *gen) nextTile(keys reg.Register) {
	step := g.arg(atSize)
	g.asm.SHLQ(operand.U8(6), step)
	g.asm.ADDQ(step, keys)
}

// panelTiles emits the code that multiplies the queries by two registers of keys: two tiles or, with AVX2, the two
// halves of a tile.
func (g *gen) panelTiles(n int, integers bool, keys, out reg.Register) {
	in, groups, to := g.arg(atIn), g.arg(atGroups), g.copyOf(out)
	g.loop(groups, func() {
		k := [2]reg.GPVirtual{g.copyOf(keys)}
		k[1] = k[0]
		if g.wide() {
			k[1] = g.copyOf(keys)
			g.nextTile(k[1])
			g.asm.CMPQ(g.argMem(atN), operand.U8(1))
			g.asm.CMOVQEQ(keys, k[1])
		}
		g.asm.MOVQ(operand.I32(0), g.argMem(atCount))
		ahead := g.nextAhead(in)
		sum := g.label("sum")
		g.asm.Label(sum)
		g.panelSum(n, integers, k, in, ahead)
		g.addSums(n, to, g.argMem(atCount), 0)
		done := g.arg(atFirst)
		g.asm.ADDQ(g.argMem(atCount), done)
		g.asm.MOVQ(done, g.argMem(atCount))
		g.asm.CMPQ(done, g.argMem(atSize))
		g.asm.JLT(operand.LabelRef(sum))
		g.nextGroup(in, atInStride, n)
		g.nextGroup(to, atOutStride, n)
	})
}

// nextAhead returns a register with the next address of the list ahead. After the end of the list, the register has the
// address in other. The memory there should be in the processor's cache already.
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

// panelSum emits the code that sums the products of the next elements in 2·n registers. Argument first of the kernel
// says how many elements; if fewer are left, it takes all of them. It prefetches one cache line for every four
// elements.
func (g *gen) panelSum(n int, integers bool, k [2]reg.GPVirtual, in reg.Register, ahead reg.GPVirtual) {
	g.zeros(2 * n)
	elements, done, from := g.arg(atSize), g.arg(atCount), g.asm.GP64()
	g.asm.LEAQ(operand.Mem{Base: in, Index: done, Scale: 4}, from)
	g.asm.SUBQ(done, elements)
	g.asm.CMPQ(elements, g.argMem(atFirst))
	g.asm.CMOVQGT(g.argMem(atFirst), elements)
	g.asm.SHRQ(operand.U8(2), elements)
	q := g.newRows(from, atInStride, n)
	g.loop(elements, func() {
		g.panelElements(n, integers, k, q)
		g.asm.PREFETCHT1(mem(ahead, 0))
		g.asm.ADDQ(operand.I32(64), ahead)
	})
	if integers {
		g.toFloat(2 * n)
	}
}

// addSums emits code for the sums of n rows, which are in registers. If done is greater than first at run time, the
// code adds them to the sums in memory at to. Otherwise it overwrites the sums in memory.
func (g *gen) addSums(n int, to reg.Register, done operand.Op, first int) {
	store := g.label("store")
	g.asm.CMPQ(done, operand.I32(first))
	g.asm.JLE(operand.LabelRef(store))
	g.addRows(n, to)
	g.asm.Label(store)
	g.sums(n, to, false)
}

func (g *gen) addRows(n int, to reg.Register) {
	o := g.newRows(to, atOutStride, n)
	for row := range n {
		for v := range 2 {
			r := g.regs[2*row+v]
			g.asm.VADDPS(o.At(row, v*g.bytes()), r, r)
		}
	}
}

// products emits the code that loads one number of each of n rows, multiplies it by two registers, and adds the
// products to the row's sums. The number is at byte at of the row, and registers is the number of the first of the two
// registers. The code loads the numbers of successive rows into count different registers in rotation, of which bcast
// is the first.
func (g *gen) products(n int, rows *assembly.Rows, at, registers, bcast, count int) {
	for row := range n {
		b := g.regs[bcast+row%count]
		g.asm.VBROADCASTSS(rows.At(row, at), b)
		for v := range 2 {
			g.asm.VFMADD231PS(b, g.regs[registers+v], g.regs[2*row+v])
		}
	}
}

func (g *gen) panelElements(n int, integers bool, k [2]reg.GPVirtual, q *assembly.Rows) {
	half := 0 // where the second register of a tile begins
	if !g.wide() {
		half = g.bytes()
	}
	for j := range 4 {
		for v := range 2 {
			g.asm.VMOVUPS(mem(k[v], j*tileBytes+v*half), g.regs[2*n+v])
		}
		if !integers {
			g.products(n, q, 4*j, 2*n, 2*n+2, 2)
			continue
		}
		for row := range n {
			b := g.regs[2*n+2+row%2]
			g.asm.VBROADCASTSS(q.At(row, 4*j), b)
			for v := range 2 {
				g.dot(b, g.regs[2*n+v], g.regs[2*row+v], g.regs[2*n+4])
			}
		}
	}
	q.Advance(g.asm, operand.I32(16))
	g.asm.ADDQ(operand.I32(4*tileBytes), k[0])
	if g.wide() {
		g.asm.ADDQ(operand.I32(4*tileBytes), k[1])
	}
}

func (g *gen) nextGroup(p reg.Register, stride, n int) {
	s := g.arg(stride)
	g.asm.IMUL3Q(operand.U8(n), s, s)
	g.asm.ADDQ(s, p)
}

// panelValues generates the kernel that adds p·v over n tokens to the sums of groups × n rows. It keeps two registers
// of elements of each row at a time. Arguments: in, the weights; data, the values; out, the sums; n, the number of
// tokens; size, the number of chunks. If first is 0, each token is added to the sums in out directly. Otherwise the
// kernel sums as many tokens as first says, then 16 tokens at a time, and adds each of these sums to out.
func panelValues(g *gen, n int) {
	g.begin(fmt.Sprintf("valuesPanel%d", n))
	parts := g.arg(atSize)
	data, out := g.arg(atData), g.arg(atOut)
	if !g.wide() {
		g.asm.SHLQ(operand.U8(1), parts)
	}
	g.loop(parts, func() {
		g.panelPart(n, data, out)
		g.asm.ADDQ(operand.I32(2*g.bytes()), out)
		if g.wide() {
			g.asm.ADDQ(operand.I32(panelBytes), data)
			return
		}
		half := g.label("half")
		g.asm.ADDQ(operand.I32(2*g.bytes()), data)
		g.asm.TESTQ(operand.I32(1), parts)
		g.asm.JZ(operand.LabelRef(half)) // this was the first half of a chunk
		g.asm.ADDQ(operand.I32(panelBytes-chunkBytes), data)
		g.asm.Label(half)
	})
	g.end()
}

func (g *gen) panelPart(n int, data, out reg.Register) {
	in, to, groups := g.arg(atIn), g.copyOf(out), g.arg(atGroups)
	g.loop(groups, func() {
		g.zeros(2 * n)
		rest, next := g.arg(atN), g.arg(atFirst)
		apart, start := g.label("apart"), g.label("tokens")
		g.asm.TESTQ(next, next)
		g.asm.JNE(operand.LabelRef(apart))
		g.sums(n, to, true)
		g.asm.MOVQ(rest, next)
		g.asm.Label(apart)
		g.asm.MOVQ(rest, g.argMem(atRemaining))
		values, at := g.copyOf(data), g.copyOf(in)
		g.asm.Label(start)
		g.panelTokens(n, values, at, next)
		g.addSums(n, to, g.argMem(atFirst), 0)
		g.zeros(2 * n)
		g.asm.MOVQ(operand.I32(tileTokens), next)
		g.asm.CMPQ(g.argMem(atRemaining), operand.I32(0))
		g.asm.JNE(operand.LabelRef(start))
		g.nextGroup(in, atInStride, n)
		g.nextGroup(to, atOutStride, n)
	})
}

// panelTokens emits the code that adds p·v of several tokens to registers, and advances the pointers values and at
// past these tokens. Register next says how many tokens; if fewer remain, the code takes those and sets next to their
// number.
func (g *gen) panelTokens(n int, values, at, next reg.GPVirtual) {
	g.asm.CMPQ(next, g.argMem(atRemaining))
	g.asm.CMOVQGT(g.argMem(atRemaining), next)
	g.asm.SUBQ(next, g.argMem(atRemaining))
	p := g.newRows(at, atInStride, n)
	g.asm.LEAQ(operand.Mem{Base: at, Index: next, Scale: 4}, at)
	g.loop(next, func() {
		for v := range 2 {
			g.asm.VMOVUPS(mem(values, v*g.bytes()), g.regs[2*n+v])
		}
		g.products(n, p, 0, 2*n, 2*n+2, 2)
		p.Advance(g.asm, operand.I32(4))
		g.asm.ADDQ(operand.I32(chunkBytes), values)
	})
}

// sums loads or stores the sums of n rows.
func (g *gen) sums(n int, to reg.Register, load bool) {
	o := g.newRows(to, atOutStride, n)
	for row := range n {
		for v := range 2 {
			at, r := o.At(row, v*g.bytes()), g.regs[2*row+v]
			if load {
				g.asm.VMOVUPS(at, r)
			} else {
				g.asm.VMOVUPS(r, at)
			}
		}
	}
}
