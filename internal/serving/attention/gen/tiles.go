package main

import (
	"fmt"
	"slices"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/serving/assembly"
)

// prefetchDistance returns how many tiles ahead the kernels prefetch into the nearest cache. With heads of 128
// elements, these tiles have 8 KB, or 16 KB with F32.
func (d dtype) prefetchDistance() int { return max(2, 4/d.bytes) }

// farPrefetchDistance returns how many tiles ahead the kernels prefetch into an outer cache.
func (d dtype) farPrefetchDistance() int { return 2 * d.prefetchDistance() }

// tileTypes returns the types that the kernels of an instruction set can read directly from blocks. With AVX2, E4M3 and
// E5M2 are not among them: package attention converts tiles of these types to float16 before it runs a kernel.
func tileTypes(w width) []dtype {
	if w.wide() {
		return append(slices.Clone(directTypes), eightBitTypes...)
	}
	return directTypes
}

// tileScores generates the kernels that read keys directly from blocks, for the types of tileTypes except Int8. The
// kernels for Int8 are generated in integers.go.
func tileScores(g *gen) {
	for _, d := range tileTypes(g.width) {
		if d == int8s {
			continue
		}
		for _, n := range g.tileRows {
			tileScore(g, d, n)
		}
	}
}

// sumElements is how many products of float32 keys are summed before their sum is added to the earlier sums. For
// narrower types, all products are added to one sum. The error of this sum is small compared with the rounding of the
// keys.
const sumElements = 32

// unroll is the number of elements that one iteration of tileScore multiplies, for types of 16 or 32 bits.
const unroll = 2

type scoreKernel struct {
	d              dtype
	n, perStep     int // rows; tiles at a time
	keys, bcast    int // registers
	pairing        int // register; Int8 in AVX-512 only
	eight          *eightBits
	line           int // bytes of one element of all keys of a tile
	key, next, far [2]reg.GPVirtual
	list, offset   reg.GPVirtual
}

// tileScore generates the kernel that reads keys of type d directly from blocks. It multiplies the given number of rows
// of queries by tiles of keys. Arguments:
//
//	input  the queries
//	size   the number of elements of a head, a multiple of 16
//	data   a list of addresses: first of the tiles to multiply, then of the next tiles, to prefetch
//	n      the number of tiles to multiply, an even number
//	out    the products
//
// The kernel changes out, n and count. For E4M3 it sets flag if a key is NaN.
func tileScore(g *gen, d dtype, rows int) {
	g.begin(fmt.Sprintf("scores%sx%d", d.name, rows))
	k := scoreKernel{d: d, n: rows, perStep: 1, keys: 2 * rows, bcast: 2*rows + 2, pairing: len(g.regs) - 1,
		line: tileTokens * d.bytes}
	if g.wide() {
		k.perStep = 2
	}
	if d.bytes == 1 {
		k.bcast += 2
	}
	if d == int8s {
		g.pairing(k.pairing)
	} else {
		k.eight = g.eightBits(d)
	}
	k.list = g.arg(atData)
	step := g.label("step")
	g.asm.Label(step)
	g.tileStep(&k)
	g.asm.ADDQ(operand.I32(k.perStep*tileBytes), g.argMem(atOut))
	g.asm.ADDQ(operand.I32(8*k.perStep), k.list)
	g.asm.SUBQ(operand.U8(k.perStep), g.argMem(atN))
	g.asm.JNZ(operand.LabelRef(step))
	k.eight.end()
	g.end()
}

func (g *gen) tileStep(k *scoreKernel) {
	for v := range k.perStep {
		k.key[v], k.next[v], k.far[v] = g.asm.GP64(), g.asm.GP64(), g.asm.GP64()
		g.asm.MOVQ(mem(k.list, 8*v), k.key[v])
		g.asm.MOVQ(mem(k.list, 8*(v+k.d.prefetchDistance())), k.next[v])
		g.asm.MOVQ(mem(k.list, 8*(v+k.d.farPrefetchDistance())), k.far[v])
	}
	end := g.arg(atSize)
	g.asm.IMUL3Q(operand.U8(k.line), end, end)
	g.asm.MOVQ(end, g.argMem(atCount))
	k.offset = g.asm.GP64()
	g.asm.XORQ(k.offset, k.offset)
	elements, sum := g.label("elements"), g.label("sum")
	g.asm.Label(sum)
	g.zeros(2 * k.n)
	queries := g.arg(atInput)
	if k.d.name == "F32" { // skip the k.offset/line elements that were summed, of 4 bytes each
		summed := g.copyOf(k.offset)
		g.asm.SHRQ(operand.U8(4), summed)
		g.asm.ADDQ(summed, queries)
	}
	q := g.newRows(queries, atInputStride, k.n)
	g.asm.Label(elements)
	switch {
	case k.d == int8s:
		g.tilePrefetch(k, 4)
		g.tilePairs(k, q)
	case k.d.bytes == 1:
		g.tilePrefetch(k, 4)
		g.tileEights(k, q)
	default:
		g.tilePrefetch(k, unroll)
		for e := range unroll {
			g.tileElement(k, e, q)
		}
		q.Advance(g.asm, operand.I32(4*unroll))
		g.asm.ADDQ(operand.I32(unroll*k.line), k.offset)
	}
	if k.d.name == "F32" {
		last := g.label("last")
		g.asm.CMPQ(k.offset, g.argMem(atCount))
		g.asm.JGE(operand.LabelRef(last))
		g.asm.TESTQ(operand.I32(sumElements*k.line-1), k.offset)
		g.asm.JNZ(operand.LabelRef(elements))
		g.asm.Label(last)
		g.addSums(k.n, g.arg(atOut), k.offset, sumElements*k.line)
		g.asm.CMPQ(k.offset, g.argMem(atCount))
		g.asm.JLT(operand.LabelRef(sum))
		return
	}
	g.asm.CMPQ(k.offset, g.argMem(atCount))
	g.asm.JLT(operand.LabelRef(elements))
	if k.d == int8s {
		g.toFloat(2 * k.n)
	}
	g.sums(k.n, g.arg(atOut), false)
}

func (g *gen) tilePrefetch(k *scoreKernel, elements int) {
	for v := range k.perStep {
		for disp := 0; disp < elements*k.line; disp += 64 {
			g.asm.PREFETCHT0(operand.Mem{Base: k.next[v], Index: k.offset, Scale: 1, Disp: disp})
			g.asm.PREFETCHT2(operand.Mem{Base: k.far[v], Index: k.offset, Scale: 1, Disp: disp})
		}
	}
}

func (g *gen) tileElement(k *scoreKernel, e int, q *assembly.Rows) {
	for v := range 2 {
		m := operand.Mem{Base: k.key[v*(k.perStep-1)], Index: k.offset, Scale: 1, Disp: e * k.line}
		if !g.wide() {
			m.Disp += v * g.lanes * k.d.bytes
		}
		assembly.LoadFloats(g.asm, k.d.name, m, g.regs[k.keys+v])
	}
	g.products(k.n, q, 4*e, k.keys, k.bcast, 1)
}

func (g *gen) tileEights(k *scoreKernel, q *assembly.Rows) {
	for v := range 2 {
		k.eight.check(operand.Mem{Base: k.key[v], Index: k.offset, Scale: 1}, k.bcast, nil)
	}
	for pair := range 2 {
		for v := range 2 {
			m := operand.Mem{Base: k.key[v], Index: k.offset, Scale: 1, Disp: 2 * pair * k.line}
			k.eight.load(m, k.keys+v, k.keys+2+v, nil)
		}
		for e := range 2 {
			g.products(k.n, q, 4*(2*pair+e), k.keys+2*e, k.bcast, 1)
		}
	}
	q.Advance(g.asm, operand.I32(16))
	g.asm.ADDQ(operand.I32(4*k.line), k.offset)
}
