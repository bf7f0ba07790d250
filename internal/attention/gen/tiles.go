package main

import (
	"fmt"
	"slices"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/assembly"
)

// ahead is the distance, in tiles, at which a tile is prefetched: about 8 KB.
func (d dtype) ahead() int { return max(2, 4/d.bytes) }

// far is the distance, in tiles, at which a tile is first prefetched, into a cache that is
// further away.
func (d dtype) far() int { return 2 * d.ahead() }

// tileTypes are the types that the tile kernels of an instruction set read. AVX2 reads E4M3 and E5M2 as float16.
func tileTypes(w width) []dtype {
	if w.wide() {
		return append(slices.Clone(wholes), eights...)
	}
	return wholes
}

// tileScores are the kernels that multiply a few rows with keys where they lie.
// Those of Int8 are integers'.
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

// sumElements is the number of products of float32 keys that are summed up before the sum is
// added to those before it. For narrower types all products are one sum: their
// rounding hides its error.
const sumElements = 32

// unroll is the number of elements of 16 or 32 bits that tileScore multiplies in a turn.
const unroll = 2

// A scoreKernel multiplies n rows with tiles of keys.
type scoreKernel struct {
	d              dtype
	n, perStep     int // rows, and tiles at a time
	keys, bcast    int // registers
	pairing        int // register; Int8 in AVX-512 only
	eight          *eightBits
	line           int // bytes of an element of all keys of a tile
	key, next, far [2]reg.GPVirtual
	list, at       reg.GPVirtual
}

// tileScore computes products of n rows with tiles of keys, and asks for the
// tiles that come next. in: queries; data: addresses of tiles, and of those that
// are read after them;
// out: products; n: tiles, an even number; size: elements of a head, a multiple of
// 16. out and n are used up.
func tileScore(g *gen, d dtype, n int) {
	g.begin(fmt.Sprintf("scores%sx%d", d.name, n))
	k := scoreKernel{d: d, n: n, perStep: 1, keys: 2 * n, bcast: 2*n + 2, pairing: len(g.regs) - 1,
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
	g.asm.ADDQ(operand.I32(k.perStep*tileTokens*4), g.argMem(atOut))
	g.asm.ADDQ(operand.I32(8*k.perStep), k.list)
	g.asm.SUBQ(operand.U8(k.perStep), g.argMem(atN))
	g.asm.JNZ(operand.LabelRef(step))
	k.eight.end()
	g.end()
}

// tileStep computes the products with the next tiles.
func (g *gen) tileStep(k *scoreKernel) {
	for v := range k.perStep {
		k.key[v], k.next[v], k.far[v] = g.asm.GP64(), g.asm.GP64(), g.asm.GP64()
		g.asm.MOVQ(mem(k.list, 8*v), k.key[v])
		g.asm.MOVQ(mem(k.list, 8*(v+k.d.ahead())), k.next[v])
		g.asm.MOVQ(mem(k.list, 8*(v+k.d.far())), k.far[v])
	}
	end := g.arg(atSize)
	g.asm.IMUL3Q(operand.U8(k.line), end, end)
	g.asm.MOVQ(end, g.argMem(atCount))
	k.at = g.asm.GP64()
	g.asm.XORQ(k.at, k.at)
	again, sum := g.label("elements"), g.label("sum")
	g.asm.Label(sum)
	for i := range 2 * k.n {
		g.zero(i)
	}
	from := g.arg(atIn)
	if k.d.name == "F32" { // the elements before are at/line, of 4 bytes each
		done := g.copyOf(k.at)
		g.asm.SHRQ(operand.U8(4), done)
		g.asm.ADDQ(done, from)
	}
	q := g.newRows(from, atInStride, k.n)
	g.asm.Label(again)
	switch {
	case k.d == int8s:
		g.tileAsk(k, 4)
		g.tilePairs(k, q)
	case k.d.bytes == 1:
		g.tileAsk(k, 4)
		g.tileEights(k, q)
	default:
		g.tileAsk(k, unroll)
		for e := range unroll {
			g.tileElement(k, e, q)
		}
		q.Advance(g.asm, operand.I32(4*unroll))
		g.asm.ADDQ(operand.I32(unroll*k.line), k.at)
	}
	if k.d.name == "F32" {
		last := g.label("last")
		g.asm.CMPQ(k.at, g.argMem(atCount))
		g.asm.JGE(operand.LabelRef(last))
		g.asm.TESTQ(operand.I32(sumElements*k.line-1), k.at)
		g.asm.JNZ(operand.LabelRef(again))
		g.asm.Label(last)
		g.addSums(k.n, g.arg(atOut), k.at, sumElements*k.line)
		g.asm.CMPQ(k.at, g.argMem(atCount))
		g.asm.JLT(operand.LabelRef(sum))
		return
	}
	g.asm.CMPQ(k.at, g.argMem(atCount))
	g.asm.JLT(operand.LabelRef(again))
	if k.d == int8s {
		g.toFloat(2 * k.n)
	}
	g.sums(k.n, g.arg(atOut), false)
}

// tileAsk asks for what is read next: as many bytes as the next elements have.
func (g *gen) tileAsk(k *scoreKernel, elements int) {
	for v := range k.perStep {
		for disp := 0; disp < elements*k.line; disp += 64 {
			g.asm.PREFETCHT0(operand.Mem{Base: k.next[v], Index: k.at, Scale: 1, Disp: disp})
			g.asm.PREFETCHT2(operand.Mem{Base: k.far[v], Index: k.at, Scale: 1, Disp: disp})
		}
	}
}

// tileElement multiplies one of the next elements.
func (g *gen) tileElement(k *scoreKernel, e int, q *assembly.Rows) {
	for v := range 2 {
		m := operand.Mem{Base: k.key[v*(k.perStep-1)], Index: k.at, Scale: 1, Disp: e * k.line}
		if !g.wide() {
			m.Disp += v * g.lanes * k.d.bytes
		}
		assembly.LoadFloats(g.asm, k.d.name, m, g.regs[k.keys+v])
	}
	for row := range k.n {
		b := g.regs[k.bcast]
		g.asm.VBROADCASTSS(q.At(row, 4*e), b)
		for v := range 2 {
			g.asm.VFMADD231PS(b, g.regs[k.keys+v], g.regs[2*row+v])
		}
	}
}

// tileEights multiplies the next four elements, of 8 bits.
func (g *gen) tileEights(k *scoreKernel, q *assembly.Rows) {
	for v := range 2 {
		k.eight.check(operand.Mem{Base: k.key[v], Index: k.at, Scale: 1}, k.bcast, nil)
	}
	for pair := range 2 {
		for v := range 2 {
			m := operand.Mem{Base: k.key[v], Index: k.at, Scale: 1, Disp: 2 * pair * k.line}
			k.eight.load(m, k.keys+v, k.keys+2+v, nil)
		}
		for e := range 2 {
			for row := range k.n {
				b := g.regs[k.bcast]
				g.asm.VBROADCASTSS(q.At(row, 4*(2*pair+e)), b)
				for v := range 2 {
					g.asm.VFMADD231PS(b, g.regs[k.keys+2*e+v], g.regs[2*row+v])
				}
			}
		}
	}
	q.Advance(g.asm, operand.I32(16))
	g.asm.ADDQ(operand.I32(4*k.line), k.at)
}

// tileValues are the kernels that sum p·v over values where they lie.
func tileValues(g *gen) {
	for _, d := range tileTypes(g.width) {
		for _, n := range g.tileRows {
			tileValue(g, d, n)
		}
	}
}

// A valueKernel sums p·v of n rows.
type valueKernel struct {
	*gen
	d                      dtype
	n, vecs                int            // rows, and registers of elements at a time
	masks                  []reg.Register // of each register of elements but the first, in AVX-512
	eight                  *eightBits
	values, next, far, row reg.GPVirtual // row is the bytes of a value
}

// tileValue adds p·v to n rows, and asks for the tiles that come next. in:
// weights of the first token; data: addresses of tiles, and of those after them;
// out: sums, up to a multiple of 64; n: tokens; first: place of the first token in its tile; size:
// elements of a head, a multiple of 16. in, data, n and first are used up.
func tileValue(g *gen, d dtype, n int) {
	g.begin(fmt.Sprintf("values%sx%d", d.name, n))
	k := valueKernel{gen: g, d: d, n: n, vecs: 2, row: g.arg(atSize), eight: g.eightBits(d)}
	if g.wide() {
		if n <= 4 {
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
	list, place := g.arg(atData), g.arg(atFirst)
	g.asm.IMULQ(k.row, place)
	address := func(i int) reg.GPVirtual {
		p := g.asm.GP64()
		g.asm.MOVQ(mem(list, 8*i), p)
		g.asm.ADDQ(place, p)
		return p
	}
	k.values, k.next, k.far = address(0), address(d.ahead()), address(d.far())
	k.passes()
	g.nextValueTile(tile)
	g.asm.Label(done)
	k.eight.end()
	g.end()
}

// nextValueTile moves the arguments on to the next tile and its weights, and jumps to tile.
func (g *gen) nextValueTile(tile string) {
	in := g.arg(atCount)
	g.asm.SHLQ(operand.U8(2), in)
	g.asm.ADDQ(in, g.argMem(atIn))
	g.asm.ADDQ(operand.U8(8), g.argMem(atData))
	g.asm.MOVQ(operand.I32(0), g.argMem(atFirst))
	g.asm.JMP(operand.LabelRef(tile))
}

// tileCount sets count to the tokens of the next tile and takes them off n. It
// jumps if none is left.
func (g *gen) tileCount(done string) {
	left, count := g.arg(atN), g.asm.GP64()
	g.asm.TESTQ(left, left)
	g.asm.JZ(operand.LabelRef(done))
	g.asm.MOVQ(operand.I32(tileTokens), count)
	g.asm.SUBQ(g.argMem(atFirst), count)
	g.asm.CMPQ(left, count)
	g.asm.CMOVQLT(left, count)
	g.asm.SUBQ(count, left)
	g.asm.MOVQ(left, g.argMem(atN))
	g.asm.MOVQ(count, g.argMem(atCount))
}

// passes goes over the elements of a tile, some registers at a time.
func (k *valueKernel) passes() {
	g, elements, to := k.gen, k.arg(atSize), k.arg(atOut)
	pass := g.label("pass")
	g.asm.Label(pass)
	if g.wide() {
		k.setMasks(elements)
	}
	k.pass(to, elements)
	bytes := k.vecs * g.lanes * k.d.bytes
	for _, p := range []reg.Register{k.values, k.next, k.far} {
		g.asm.ADDQ(operand.I32(bytes), p)
	}
	g.asm.ADDQ(operand.I32(k.vecs*g.bytes()), to)
	g.asm.SUBQ(operand.I32(k.vecs*g.lanes), elements)
	g.asm.JGT(operand.LabelRef(pass))
}

// setMasks makes the masks of the next elements, of which there are at least 16.
func (k *valueKernel) setMasks(elements reg.Register) {
	g, bits, left := k.gen, k.asm.GP64(), k.asm.GP64()
	g.asm.MOVQ(operand.I32(64), left)
	g.asm.CMPQ(elements, left)
	g.asm.CMOVQLT(elements, left)
	g.asm.XORQ(bits, bits)
	g.asm.NOTQ(bits)
	g.asm.BZHIQ(left, bits, bits)
	if k.eight != nil {
		g.asm.KMOVQ(bits, reg.K4)
		g.asm.KSHIFTRQ(operand.U8(32), reg.K4, reg.K5)
	}
	for _, m := range k.masks {
		g.asm.SHRQ(operand.U8(16), bits)
		g.asm.KMOVW(bits.As32(), m)
	}
}

// pass adds some registers of elements over all tokens of a tile. It skips the upper half of four registers if there
// are no such elements.
func (k *valueKernel) pass(to, elements reg.Register) {
	g, n := k.gen, k.n
	if k.d.name == "F32" { // summed apart and then added
		for i := range k.vecs * n {
			g.zero(i)
		}
	} else {
		k.eachSum(to, g.asm.VMOVUPS)
	}
	at, count := g.asm.GP64(), g.arg(atCount)
	g.asm.XORQ(at, at)
	p := g.newRows(g.arg(atIn), atInStride, n)
	size := g.lanes * k.d.bytes
	g.loop(count, func() {
		for line := 0; line < k.vecs*size; line += 64 {
			g.asm.PREFETCHT0(operand.Mem{Base: k.next, Index: at, Scale: 1, Disp: line})
			g.asm.PREFETCHT2(operand.Mem{Base: k.far, Index: at, Scale: 1, Disp: line})
		}
		k.multiply(0, p, at)
		if k.vecs > 2 {
			skip := g.label("skip")
			g.asm.CMPQ(elements, operand.I32(2*g.lanes))
			g.asm.JLE(operand.LabelRef(skip))
			k.multiply(2, p, at)
			g.asm.Label(skip)
		}
		p.Advance(g.asm, operand.I32(4))
		g.asm.ADDQ(k.row, at)
	})
	if k.d.name == "F32" {
		k.eachSum(to, func(operands ...operand.Op) { g.asm.VADDPS(operands[0], operands[1], operands[1]) })
	}
	k.eachSum(to, func(operands ...operand.Op) { g.asm.VMOVUPS(operands[1], operands[0]) })
}

// multiply adds two registers of elements, from the given one on, of the next token.
func (k *valueKernel) multiply(first int, p *assembly.Rows, at reg.Register) {
	values := k.vecs * k.n
	bcast := values + k.vecs // the first of one, or of one for each row
	spare := bcast + k.n
	for v := first; v < first+2; v++ {
		m := operand.Mem{Base: k.values, Index: at, Scale: 1, Disp: v * k.lanes * k.d.bytes}
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

// eachSum does something with each of the sums in memory and their registers.
func (k *valueKernel) eachSum(to reg.Register, do func(...operand.Op)) {
	o := k.newRows(to, atOutStride, k.n)
	for row := range k.n {
		for v := range k.vecs {
			do(o.At(row, v*k.bytes()), k.regs[k.vecs*row+v])
		}
	}
}

// loadFloats reads register v of the elements, zeros where it is masked.
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
