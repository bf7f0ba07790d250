package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/serving/assembly"
)

// newRows emits the code that prepares the addresses of n rows. Register base has the address of the first row. One
// argument of the kernel is the number of bytes from one row to the next. The parameter stride is the offset of this
// argument among the kernel's arguments.
func (g *gen) newRows(base reg.Register, stride, n int) *assembly.Rows {
	return assembly.NewRows(g.asm, g.copyOf(base), func() reg.Register { return g.arg(stride) }, n)
}

// panels generates the kernels for a partition whose keys and values were converted to float32.
func panels(g *gen) {
	panelScores(g, g.rows, false)
	panelValues(g, g.rows)
}

// panelScores generates the kernel that multiplies queries by tiles of keys. The queries are in groups of the given
// number of rows, one query in each row. Arguments:
//
//	groups        the number of groups
//	input         the queries
//	size          the number of elements of a query or a key
//	data          the tiles of keys
//	n             the number of tiles
//	out           the products
//	sumSize       the number of elements whose products are summed at a time, a multiple of 4
//	prefetchList  a list of addresses, ended by 0
//
// The kernel writes the first sum of sumSize products to out, and adds each later sum to it. For each group and each
// one or two tiles, it takes an address from prefetchList and prefetches 16·size bytes there. It changes n and
// prefetchList.
//
// If integers is true, an element is a pair of integers, and sumSize is equal to size. With AVX-512, the kernel takes
// two tiles at a time. If the number of tiles is odd, it takes the last tile twice.
func panelScores(g *gen, rows int, integers bool) {
	name := "scoresPanel%d"
	if integers {
		name = "integersPanel%d"
	}
	g.begin(fmt.Sprintf(name, rows))
	keys, out := g.arg(atData), g.arg(atOut)
	step := g.label("step")
	tiles := 2 * g.lanes / tileTokens
	g.asm.Label(step)
	g.panelTiles(rows, integers, keys, out)
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

// panelTiles emits the code that multiplies all groups of queries by two registers of keys. With AVX-512, these are two
// tiles; with AVX2, they are the two halves of a tile. n is the number of queries in a group.
func (g *gen) panelTiles(n int, integers bool, keys, out reg.Register) {
	queries, groups, products := g.arg(atInput), g.arg(atGroups), g.copyOf(out)
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
		prefetchAddress := g.nextPrefetch(queries)
		sum := g.label("sum")
		g.asm.Label(sum)
		g.panelSum(n, integers, k, queries, prefetchAddress)
		g.addSums(n, products, g.argMem(atCount), 0)
		summed := g.arg(atSumSize)
		g.asm.ADDQ(g.argMem(atCount), summed)
		g.asm.MOVQ(summed, g.argMem(atCount))
		g.asm.CMPQ(summed, g.argMem(atSize))
		g.asm.JLT(operand.LabelRef(sum))
		g.nextGroup(queries, atInputStride, n)
		g.nextGroup(products, atOutStride, n)
	})
}

// nextPrefetch emits the code that takes the next address from the list in argument prefetchList. It returns the
// register that has the address. At the end of the list, the register has the address in fallback. The memory at
// fallback should already be in the processor's cache, so that prefetching it costs little.
func (g *gen) nextPrefetch(fallback reg.Register) reg.GPVirtual {
	list, after, address := g.arg(atPrefetchList), g.asm.GP64(), g.asm.GP64()
	g.asm.LEAQ(mem(list, 8), after)
	g.asm.MOVQ(mem(list, 0), address)
	g.asm.TESTQ(address, address)
	g.asm.CMOVQEQ(fallback, address)
	g.asm.CMOVQNE(after, list)
	g.asm.MOVQ(list, g.argMem(atPrefetchList))
	return address
}

// panelSum emits the code that multiplies the next elements of queries and keys, and sums the products in registers 0
// to 2·n-1. It takes as many elements as argument sumSize says, or all remaining elements if there are fewer. For every
// four elements, it prefetches one cache line, beginning at prefetchAddress.
func (g *gen) panelSum(n int, integers bool, k [2]reg.GPVirtual, queries reg.Register, prefetchAddress reg.GPVirtual) {
	g.zeros(2 * n)
	elements, summed, start := g.arg(atSize), g.arg(atCount), g.asm.GP64()
	g.asm.LEAQ(operand.Mem{Base: queries, Index: summed, Scale: 4}, start)
	g.asm.SUBQ(summed, elements)
	g.asm.CMPQ(elements, g.argMem(atSumSize))
	g.asm.CMOVQGT(g.argMem(atSumSize), elements)
	g.asm.SHRQ(operand.U8(2), elements)
	q := g.newRows(start, atInputStride, n)
	g.loop(elements, func() {
		g.panelElements(n, integers, k, q)
		g.asm.PREFETCHT1(mem(prefetchAddress, 0))
		g.asm.ADDQ(operand.I32(64), prefetchAddress)
	})
	if integers {
		g.toFloat(2 * n)
	}
}

// addSums emits the code that writes the sums of n rows from registers to memory at out. The code compares value with
// threshold at run time. If value is greater, memory already has sums, and the code adds the registers to them.
// Otherwise the code overwrites the memory.
func (g *gen) addSums(n int, out reg.Register, value operand.Op, threshold int) {
	store := g.label("store")
	g.asm.CMPQ(value, operand.I32(threshold))
	g.asm.JLE(operand.LabelRef(store))
	g.addRows(n, out)
	g.asm.Label(store)
	g.sums(n, out, false)
}

func (g *gen) addRows(n int, out reg.Register) {
	o := g.newRows(out, atOutStride, n)
	for row := range n {
		for v := range 2 {
			r := g.regs[2*row+v]
			g.asm.VADDPS(o.At(row, v*g.bytes()), r, r)
		}
	}
}

// products emits the code that adds products to the sums of n rows. For each row, the code loads the number at the
// given offset in bytes, multiplies it by registers vector and vector+1, and adds the products to the two registers
// with the row's sums. It loads the number of row i into register
//
//	bcast + i mod bcastCount
//
// so that successive rows use different registers.
func (g *gen) products(n int, rows *assembly.Rows, offset, vector, bcast, bcastCount int) {
	for row := range n {
		b := g.regs[bcast+row%bcastCount]
		g.asm.VBROADCASTSS(rows.At(row, offset), b)
		for v := range 2 {
			g.asm.VFMADD231PS(b, g.regs[vector+v], g.regs[2*row+v])
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

// panelValues generates the kernel that adds p·v, the weight of a token times its value, to the sums of rows. The
// kernel takes the rows in groups. The parameter rows is the number of rows in a group. Arguments:
//
//	groups    the number of groups
//	input     the weights
//	data      the values
//	n         the number of tokens
//	size      the number of chunks of a value
//	out       the sums
//	firstSum  0, or the number of tokens in the first sum
//
// If firstSum is 0, the kernel adds each token to the sums in out directly. Otherwise it first sums firstSum tokens,
// then 16 tokens at a time, and adds each of these sums to out. It computes two registers of elements of each row at a
// time.
func panelValues(g *gen, rows int) {
	g.begin(fmt.Sprintf("valuesPanel%d", rows))
	parts := g.arg(atSize)
	data, out := g.arg(atData), g.arg(atOut)
	if !g.wide() {
		g.asm.SHLQ(operand.U8(1), parts)
	}
	g.loop(parts, func() {
		g.panelPart(rows, data, out)
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
	input, sums, groups := g.arg(atInput), g.copyOf(out), g.arg(atGroups)
	g.loop(groups, func() {
		g.zeros(2 * n)
		rest, count := g.arg(atN), g.arg(atFirstSum)
		separate, start := g.label("apart"), g.label("tokens")
		g.asm.TESTQ(count, count)
		g.asm.JNE(operand.LabelRef(separate))
		g.sums(n, sums, true)
		g.asm.MOVQ(rest, count)
		g.asm.Label(separate)
		g.asm.MOVQ(rest, g.argMem(atRemaining))
		valueAddress, weightAddress := g.copyOf(data), g.copyOf(input)
		g.asm.Label(start)
		g.panelTokens(n, valueAddress, weightAddress, count)
		g.addSums(n, sums, g.argMem(atFirstSum), 0)
		g.zeros(2 * n)
		g.asm.MOVQ(operand.I32(tileTokens), count)
		g.asm.CMPQ(g.argMem(atRemaining), operand.I32(0))
		g.asm.JNE(operand.LabelRef(start))
		g.nextGroup(input, atInputStride, n)
		g.nextGroup(sums, atOutStride, n)
	})
}

// panelTokens emits the code that adds p·v of several tokens to the sums in registers. It takes as many tokens as
// register count says. If fewer remain, it takes all of them. It changes count. It advances registers valueAddress and
// weightAddress to the next token.
func (g *gen) panelTokens(n int, valueAddress, weightAddress, count reg.GPVirtual) {
	g.asm.CMPQ(count, g.argMem(atRemaining))
	g.asm.CMOVQGT(g.argMem(atRemaining), count)
	g.asm.SUBQ(count, g.argMem(atRemaining))
	p := g.newRows(weightAddress, atInputStride, n)
	g.asm.LEAQ(operand.Mem{Base: weightAddress, Index: count, Scale: 4}, weightAddress)
	g.loop(count, func() {
		for v := range 2 {
			g.asm.VMOVUPS(mem(valueAddress, v*g.bytes()), g.regs[2*n+v])
		}
		g.products(n, p, 0, 2*n, 2*n+2, 2)
		p.Advance(g.asm, operand.I32(4))
		g.asm.ADDQ(operand.I32(chunkBytes), valueAddress)
	})
}

// sums emits the code that loads the sums of n rows from memory at out into registers, or stores them there.
func (g *gen) sums(n int, out reg.Register, load bool) {
	o := g.newRows(out, atOutStride, n)
	for row := range n {
		for v := range 2 {
			m, r := o.At(row, v*g.bytes()), g.regs[2*row+v]
			if load {
				g.asm.VMOVUPS(m, r)
			} else {
				g.asm.VMOVUPS(r, m)
			}
		}
	}
}
