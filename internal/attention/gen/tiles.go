package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/assembly"
)

// ahead is the distance, in tiles, at which a tile is prefetched: about 8 KB.
func (d dtype) ahead() int { return max(2, 4/d.bytes) }

// far is the distance, in tiles, at which a tile is first prefetched, into a cache that is
// further away.
func (d dtype) far() int { return 2 * d.ahead() }

// has reports whether an instruction set has its own tile kernels of a type. AVX-512 has
// those of E4M3 only together with GFNI.
func (w width) has(d dtype) bool { return !w.wide() || w.vnni == (d.name == "E4M3") }

// tileScores are the kernels that multiply a few rows with keys where they lie.
// Those of Int8 are integers'.
func tileScores(g *gen) {
	for _, d := range dtypes[:len(dtypes)-1] {
		if !g.has(d) {
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

// A reading is how numbers of a tile are read. It has three registers.
type reading struct {
	d                        dtype
	read                     dtype // the type as which they are read
	words                    bool  // they become float16 in room first
	checked                  bool  // NaN is looked for
	constant, nan, magnitude int   // registers
}

// reading loads the constants for reading numbers of a type.
func (g *gen) reading(d dtype) reading {
	last := len(g.regs) - 1
	r := reading{d, g.readAs(d), g.words(d), d.name == "E4M3", last, last - 1, last - 2}
	g.constants(d, r.constant)
	if r.words {
		g.wordConstants()
	}
	if r.checked {
		g.zero(r.nan)
		m := g.constant("magnitude", 0x7f7f7f7f)
		g.asm.VPBROADCASTD(m, g.regs[r.magnitude])
	}
	return r
}

// A scoreKernel multiplies n rows with tiles of keys.
type scoreKernel struct {
	reading
	n, perStep     int // rows, and tiles at a time
	keys, bcast    int // registers
	integers       bool
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
	g.begin(fmt.Sprintf("scoresTile%s%d", d.name, n))
	k := scoreKernel{reading: g.reading(d), n: n, perStep: 1, keys: 2 * n, bcast: 2*n + 2, integers: d.name == "Int8"}
	k.line = tileTokens * k.read.bytes
	if g.wide() {
		k.perStep, k.bcast = 2, 2*n+4
	}
	if k.integers {
		g.pairing(k.constant)
	}
	k.list = g.arg(atData)
	step := g.label("step")
	g.asm.Label(step)
	g.tileStep(&k)
	g.asm.ADDQ(operand.I32(k.perStep*tileTokens*4), g.argMem(atOut))
	g.asm.ADDQ(operand.I32(8*k.perStep), k.list)
	g.asm.SUBQ(operand.U8(k.perStep), g.argMem(atN))
	g.asm.JNZ(operand.LabelRef(step))
	if k.checked {
		g.foundNaNWide(k.nan, k.magnitude)
	}
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
	if k.words {
		g.keyWords(k)
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
	g.tileAsk(k)
	switch {
	case k.integers:
		g.tilePairs(k, q)
	default:
		for j := 0; j < 4; j += 2 {
			g.tileElements(k, j, q)
		}
		q.Advance(g.asm, operand.I32(16))
	}
	g.asm.ADDQ(operand.I32(4*k.line), k.at)
	if k.d.name == "F32" {
		last := g.label("last")
		g.asm.CMPQ(k.at, g.argMem(atCount))
		g.asm.JGE(operand.LabelRef(last))
		g.asm.TESTQ(operand.I32(sumElements*k.line-1), k.at)
		g.asm.JNZ(operand.LabelRef(again))
		g.asm.Label(last)
		g.addSums(k.n, 2, g.arg(atOut), 0, k.at, sumElements*k.line)
		g.asm.CMPQ(k.at, g.argMem(atCount))
		g.asm.JLT(operand.LabelRef(sum))
		return
	}
	g.asm.CMPQ(k.at, g.argMem(atCount))
	g.asm.JLT(operand.LabelRef(again))
	if k.integers {
		g.toFloat(2 * k.n)
	}
	g.sums(k.n, 2, g.arg(atOut), 0, false)
}

// tileAsk asks for what is read next, and looks for NaN in the next elements.
func (g *gen) tileAsk(k *scoreKernel) {
	for v := range k.perStep {
		for disp := 0; disp < 4*tileTokens*k.d.bytes; disp += 64 {
			g.asm.PREFETCHT0(operand.Mem{Base: k.next[v], Index: k.at, Scale: 1, Disp: disp})
			g.asm.PREFETCHT2(operand.Mem{Base: k.far[v], Index: k.at, Scale: 1, Disp: disp})
		}
		if k.words { // which at passes twice as fast
			g.asm.SUBQ(operand.U8(64), k.next[v])
			g.asm.SUBQ(operand.U8(64), k.far[v])
			continue
		}
		if k.checked {
			g.checkNaN(operand.Mem{Base: k.key[v], Index: k.at, Scale: 1}, 4*k.line, k.nan, k.magnitude, k.bcast)
		}
	}
}

// tileElements multiplies elements j and j+1.
func (g *gen) tileElements(k *scoreKernel, j int, q *assembly.Rows) {
	if g.wide() {
		for v := range 2 {
			g.loadPair(k.read, operand.Mem{Base: k.key[v], Index: k.at, Scale: 1, Disp: j * k.line}, k.keys+v, k.keys+2+v,
				k.constant)
		}
	}
	for e := range 2 {
		key := k.keys + 2*e
		if !g.wide() {
			key = k.keys
			g.loadPair(k.read, operand.Mem{Base: k.key[0], Index: k.at, Scale: 1, Disp: (j + e) * k.line}, key, key+1,
				k.constant)
		}
		for row := range k.n {
			b := g.regs[k.bcast+row%2]
			if !g.wide() {
				b = g.regs[k.bcast]
			}
			g.asm.VBROADCASTSS(q.At(row, 4*(j+e)), b)
			for v := range 2 {
				g.asm.VFMADD231PS(b, g.regs[key+v], g.regs[2*row+v])
			}
		}
	}
}

// tileValues are the kernels that sum p·v over values where they lie.
func tileValues(g *gen) {
	for _, d := range dtypes {
		if !g.has(d) {
			continue
		}
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
	row, read := g.arg(atSize), g.readAs(d)
	if read.bytes > 1 {
		g.asm.SHLQ(operand.U8(read.bytes/2), row)
	}
	k := valueKernel{reading: g.reading(d), n: n, row: row}
	done, tile := g.label("done"), g.label("tile")
	g.asm.Label(tile)
	g.tileCount(done)
	k.values, k.next, k.far = g.asm.GP64(), g.asm.GP64(), g.asm.GP64()
	list, place := g.arg(atData), g.arg(atFirst)
	g.asm.MOVQ(mem(list, 0), k.values)
	g.asm.MOVQ(mem(list, 8*d.ahead()), k.next)
	g.asm.MOVQ(mem(list, 8*d.far()), k.far)
	if k.words {
		g.asm.IMULQ(g.argMem(atSize), place)
		g.valueWords(&k, place)
	} else {
		g.asm.IMULQ(row, place)
		g.asm.ADDQ(place, k.values)
	}
	g.asm.ADDQ(place, k.next)
	g.asm.ADDQ(place, k.far)
	g.tilePasses(&k)
	g.nextValueTile(tile)
	g.asm.Label(done)
	if k.checked {
		g.foundNaNWide(k.nan, k.magnitude)
	}
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

// A valueKernel sums p·v of n rows.
type valueKernel struct {
	reading
	n                      int
	values, next, far, row reg.GPVirtual // row is the bytes of a value
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
		g.asm.Label(pass)
		g.asm.CMPQ(elements, operand.I32(size*g.lanes))
		g.asm.JLT(operand.LabelRef(done))
		g.tilePass(k, size, to)
		g.asm.ADDQ(operand.I32(size*g.lanes*k.read.bytes), k.values)
		g.asm.ADDQ(operand.I32(size*g.lanes*k.d.bytes), k.next)
		g.asm.ADDQ(operand.I32(size*g.lanes*k.d.bytes), k.far)
		g.asm.ADDQ(operand.I32(size*g.bytes()), to)
		g.asm.SUBQ(operand.I32(size*g.lanes), elements)
		g.asm.JMP(operand.LabelRef(pass))
		g.asm.Label(done)
	}
}

// tilePass adds some registers of elements over all tokens of a tile.
func (g *gen) tilePass(k *valueKernel, vecs int, to reg.Register) {
	n := k.n
	acc, values, bcast := 0, n*vecs, n*vecs+vecs
	if k.d.name == "F32" { // summed apart and then added
		for i := range n * vecs {
			g.zero(i)
		}
	} else {
		g.sums(n, vecs, to, 0, true)
	}
	at, count := g.asm.GP64(), g.arg(atCount)
	g.asm.XORQ(at, at)
	p := g.newRows(g.arg(atIn), atInStride, n)
	size := vecs * g.lanes * k.d.bytes
	g.loop(count, func() {
		for line := 0; line < size; line += 64 {
			g.asm.PREFETCHT0(operand.Mem{Base: k.next, Index: at, Scale: 1, Disp: line})
			g.asm.PREFETCHT2(operand.Mem{Base: k.far, Index: at, Scale: 1, Disp: line})
		}
		if vecs == 1 {
			g.load(k.read, operand.Mem{Base: k.values, Index: at, Scale: 1}, values, k.constant)
		}
		for v := 0; v+1 < vecs; v += 2 {
			g.loadPair(k.read, operand.Mem{Base: k.values, Index: at, Scale: 1, Disp: v * g.lanes * k.read.bytes}, values+v,
				values+v+1, k.constant)
		}
		if k.checked && !k.words {
			g.asm.VPAND(operand.Mem{Base: k.values, Index: at, Scale: 1}, quarters[k.magnitude], quarters[bcast]) // 16 bytes
			g.asm.VPMAXUB(g.regs[bcast], g.regs[k.nan], g.regs[k.nan])
		}
		for row := range n {
			g.asm.VBROADCASTSS(p.At(row, 0), g.regs[bcast])
			for v := range vecs {
				g.asm.VFMADD231PS(g.regs[bcast], g.regs[values+v], g.regs[acc+row*vecs+v])
			}
		}
		p.Advance(g.asm, operand.I32(4))
		g.asm.ADDQ(k.row, at)
		if k.words { // which at passes twice as fast
			g.asm.SUBQ(g.argMem(atSize), k.next)
			g.asm.SUBQ(g.argMem(atSize), k.far)
		}
	})
	if k.words {
		g.asm.SHRQ(operand.U8(1), at)
		g.asm.ADDQ(at, k.next)
		g.asm.ADDQ(at, k.far)
	}
	if k.d.name == "F32" {
		g.addRows(n, vecs, to, 0)
	}
	g.sums(n, vecs, to, 0, false)
}
