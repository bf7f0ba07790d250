package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/assembly"
)

// quads is the size of the weights of 4 k of a panel, when each is a byte.
const quads = panel * 4

// stepBytes is the size of a step of activations.
const stepBytes = 12

const dotProduct = "func(sums *float32, x *int8, xStride uintptr, steps *uint64, stepsStride uintptr, w *byte, " +
	"wStride uintptr, " +
	"scales *byte, scalesStride uintptr, blocks, quads, shift, minima uintptr)"

// A dot kernel of AVX2 adds rows of 8-bit activations times blocks of 8-bit weights to the sums of 16 outputs of a
// panel, which are 64 values a row. Weights are unsigned: 2 to the power of shift was added to each, and the sums of
// activations in steps, which are negative, take that away again. The sum of a block is exact; it becomes a float, is
// multiplied by the weights' scale, and added, times the activations' scale, with one rounding. Where minima is not
// 0, the minima of the weights follow their scales, and are added times the sums of activations.
type dot struct {
	width
	x, steps     *assembly.Rows
	sums, scales Register
	acc          [][]VecVirtual // of each row
}

func newDot(w width, name string, rows, vectors int) *dot {
	begin(fmt.Sprintf("%s%sx%d", name, w.name, rows), dotProduct,
		fmt.Sprintf("adds %d rows of 8-bit activations times %d outputs of a panel of 8-bit weights to sums.", rows,
			vectors*w.bytes/4))
	d := &dot{width: w, sums: arg("sums"), scales: arg("scales")}
	d.x, d.steps = rowsOf("x", "xStride", rows), rowsOf("steps", "stepsStride", rows)
	for range rows {
		d.acc = append(d.acc, w.regs(vectors))
	}
	return d
}

// blocks goes over all blocks: it calls first, then quad for each 4 k, then last.
func (d *dot) blocks(w Register, first, quad, last func()) {
	blocks, n := arg("blocks"), asm.GP64()
	loop("block", blocks, 1, func() {
		first()
		asm.Load(asm.Param("quads"), n)
		loop("quad", n, 1, func() {
			quad()
			asm.ADDQ(U32(quads), w)
			asm.ADDQ(Imm(4), d.x.Base)
		})
		last()
		asm.ADDQ(Imm(stepBytes), d.steps.Base)
		asm.ADDQ(address("wStride"), w)
		asm.ADDQ(address("scalesStride"), d.scales)
	})
	end()
}

// scale is where the scales, or the minima, of some outputs are.
func (d *dot) scale(v int, minima bool) Mem {
	m := Mem{Base: d.scales, Disp: v * d.bytes / 2}
	if minima {
		m.Disp += panel * 2
	}
	return m
}

func (d *dot) sum(r, v int) Mem { return Mem{Base: d.sums, Disp: r*panel*4 + v*d.bytes} }

// add adds the sums of a block to those of all blocks.
func (d *dot) add() {
	scales := d.regs(len(d.acc[0]))
	for v, z := range scales {
		asm.VCVTPH2PS(d.scale(v, false), z)
	}
	for r := range d.acc {
		b := d.reg()
		asm.VBROADCASTSS(d.steps.At(r, 0), b)
		for v, acc := range d.acc[r] {
			asm.VCVTDQ2PS(acc, acc)
			asm.VMULPS(scales[v], acc, acc)
			asm.VFMADD213PS(d.sum(r, v), b, acc)
		}
	}
	asm.CMPQ(address("minima"), Imm(0))
	asm.JEQ(LabelRef("store"))
	d.minima(scales)
	asm.Label("store")
	for r := range d.acc {
		for v, acc := range d.acc[r] {
			asm.VMOVUPS(acc, d.sum(r, v))
		}
	}
}

// minima subtracts the minima of a block times the negative sum of its activations.
func (d *dot) minima(least []VecVirtual) {
	for v, z := range least {
		asm.VCVTPH2PS(d.scale(v, true), z)
	}
	for r := range d.acc {
		b := d.reg()
		asm.VBROADCASTSS(d.steps.At(r, 8), b)
		for v, acc := range d.acc[r] {
			asm.VFNMADD231PS(least[v], b, acc)
		}
	}
}

// dot512 keeps the sums of 32 outputs of all rows in registers, those of a block and those of all blocks: loading and
// storing the latter for each block would be a third of the time. It computes one half of the outputs, and then the
// other.
func dot512(rows int) {
	begin(fmt.Sprintf("dotAVX512x%d", rows), "func("+sumsOf+", x *int8, xStride uintptr, steps *uint64, "+
		"stepsStride uintptr, w *byte, wStride uintptr, scales *byte, scalesStride uintptr, ahead, aheadStep uintptr, "+
		"blocks, quads, shift, minima uintptr)",
		fmt.Sprintf("computes sums of %d rows of 8-bit activations times a panel of 8-bit weights.", rows))
	const vectors = panel / 16 / 2
	x, steps := rowsOf("x", "xStride", rows), rowsOf("steps", "stepsStride", rows)
	w, scales, ahead, blocks, n := asm.GP64(), asm.GP64(), arg("ahead"), asm.GP64(), asm.GP64()
	d := newBlockSums(steps, rows, vectors)
	asm.Label("half")
	asm.Load(asm.Param("x"), x.Base)
	asm.Load(asm.Param("steps"), steps.Base)
	asm.Load(asm.Param("w"), w)
	asm.Load(asm.Param("scales"), scales)
	asm.Load(asm.Param("blocks"), blocks)
	d.load()
	loop("block", blocks, 1, func() {
		d.begin()
		asm.Load(asm.Param("quads"), n)
		loop("quad", n, together, func() {
			for quad := range together {
				asm.PREFETCHT0(Mem{Base: ahead})
				asm.ADDQ(address("aheadStep"), ahead)
				ws := zmms(vectors)
				for v, z := range ws {
					asm.VMOVDQU32(Mem{Base: w, Disp: quad*quads + v*64}, z)
				}
				for r := range rows {
					b := asm.ZMM()
					asm.VPBROADCASTD(x.At(r, quad*4), b)
					for v, acc := range d.acc[r] {
						asm.VPDPBUSD(b, ws[v], acc)
					}
				}
			}
			asm.ADDQ(U32(together*quads), w)
			asm.ADDQ(Imm(together*4), x.Base)
		})
		d.add(Mem{Base: scales}, func() { asm.CMPQ(address("minima"), Imm(0)) })
		asm.ADDQ(Imm(stepBytes), steps.Base)
		asm.ADDQ(address("wStride"), w)
		asm.ADDQ(address("scalesStride"), scales)
	})
	d.store()
	asm.ADDQ(U32(vectors*64), address("offset"))
	asm.ADDQ(U32(vectors*64), address("w"))
	asm.ADDQ(U32(vectors*32), address("scales"))
	asm.CMPQ(address("offset"), U32(panel*4))
	asm.JNE(LabelRef("half"))
	end()
}

// together is the number of groups of 4 k that dot512 multiplies in a round of its loop. The smallest block has 4
// groups.
const together = 4

// blockSums has sums of rows and outputs in registers: those of a block in acc, and those of all blocks, as dot describes
// them, in placed.
type blockSums struct {
	placed
	steps *assembly.Rows
	shift Register
	acc   [][]VecVirtual // of each row
}

func newBlockSums(steps *assembly.Rows, rows, vectors int) *blockSums {
	s := &blockSums{placed: newPlaced(rows, vectors), steps: steps, shift: asm.XMM()}
	asm.VMOVQ(address("shift"), s.shift)
	for range rows {
		s.acc = append(s.acc, zmms(vectors))
	}
	return s
}

// begin sets the sums of a block to 0. Starting from the correction for shift, instead of adding it in add, takes
// longer.
func (s *blockSums) begin() {
	for r := range s.acc {
		for _, acc := range s.acc[r] {
			asm.VPXORD(acc, acc, acc)
		}
	}
}

// add adds the sums of a block to those of all blocks. compare compares whether there are no minima.
func (s *blockSums) add(scales Mem, compare func()) {
	compare()
	asm.JNE(LabelRef("multiply"))
	for r := range s.acc {
		b := asm.ZMM()
		asm.VPBROADCASTD(s.steps.At(r, 4), b)
		asm.VPSLLD(s.shift, b, b)
		for _, acc := range s.acc[r] {
			asm.VPADDD(b, acc, acc)
		}
	}
	asm.Label("multiply")
	zs := zmms(len(s.acc[0]))
	for v, z := range zs {
		asm.VCVTPH2PS(scales.Offset(v*32), z)
	}
	for r := range s.acc {
		b := asm.ZMM()
		asm.VBROADCASTSS(s.steps.At(r, 0), b)
		for v, acc := range s.acc[r] {
			asm.VCVTDQ2PS(acc, acc)
			asm.VMULPS(zs[v], acc, acc)
			asm.VFMADD231PS(b, acc, s.placed[r][v])
		}
	}
	compare()
	asm.JEQ(LabelRef("next"))
	for v, z := range zs {
		asm.VCVTPH2PS(scales.Offset(panel*2+v*32), z)
	}
	for r := range s.acc {
		b := asm.ZMM()
		asm.VBROADCASTSS(s.steps.At(r, 8), b)
		for v, total := range s.placed[r] {
			asm.VFNMADD231PS(zs[v], b, total)
		}
	}
	asm.Label("next")
}

// dotInt8x2 takes the offset of weights off and gives their signs to the activations, because pairs
// of products are added in 16 bits, in which those of unsigned weights may not fit.
func dotInt8x2(rows int) {
	d := newDot(avx2, "dotInt8", rows, 2)
	w, ones, offset, shift := arg("w"), asm.YMM(), d.constant(0x01010101), asm.XMM()
	asm.VMOVQ(address("shift"), shift)
	asm.VPSLLD(shift, offset, offset)
	asm.VPCMPEQW(ones, ones, ones)
	asm.VPSRLW(Imm(15), ones, ones)
	d.blocks(w, d.zero, func() {
		for v := range 2 {
			signed, size := asm.YMM(), asm.YMM()
			asm.VMOVDQU(Mem{Base: w, Disp: v * 32}, signed)
			asm.VPSUBB(offset, signed, signed)
			asm.VPABSB(signed, size)
			for r := range d.acc {
				b := asm.YMM()
				asm.VPBROADCASTD(d.x.At(r, 0), b)
				asm.VPSIGNB(signed, b, b)
				asm.VPMADDUBSW(b, size, b)
				asm.VPMADDWD(ones, b, b)
				asm.VPADDD(b, d.acc[r][v], d.acc[r][v])
			}
		}
	}, d.add)
}

// dotInt4x2 adds all products of a block in 16 bits, in pairs: 8 × 2 × 15 × 127 fits.
func dotInt4x2(rows int) {
	d := newDot(avx2, "dotInt4", rows, 2)
	w, ones, shift := arg("w"), asm.YMM(), asm.XMM()
	asm.VPCMPEQW(ones, ones, ones)
	asm.VPSRLW(Imm(15), ones, ones)
	asm.VMOVQ(address("shift"), shift)
	d.blocks(w, d.zero, func() {
		ws := ymms(2)
		asm.VMOVDQU(Mem{Base: w}, ws[0])
		asm.VMOVDQU(Mem{Base: w, Disp: 32}, ws[1])
		for r := range d.acc {
			b := asm.YMM()
			asm.VPBROADCASTD(d.x.At(r, 0), b)
			for v, z := range d.acc[r] {
				products := asm.YMM()
				asm.VPMADDUBSW(b, ws[v], products)
				asm.VPADDW(products, z, z)
			}
		}
	}, func() {
		for r := range d.acc {
			minus := asm.YMM()
			asm.VPBROADCASTD(d.steps.At(r, 4), minus)
			asm.VPSLLD(shift, minus, minus)
			for _, z := range d.acc[r] {
				asm.VPMADDWD(ones, z, z)
				asm.VPADDD(minus, z, z)
			}
		}
		d.add()
	})
}

// zero sets the sums of a block to 0.
func (d *dot) zero() {
	for r := range d.acc {
		for _, z := range d.acc[r] {
			asm.VPXOR(z, z, z)
		}
	}
}

// A packing is how weights of less than a byte are kept: a group of k has 256 bytes with the bits above the low 4, if
// there are any, and then the low 4 bits in pairs of 4 k, 256 bytes each.
type packing struct {
	name  string
	high  int  // bits above the low 4
	table bool // the integers are places in a table
}

var packings = []packing{{name: "Int4"}, {name: "Int5", high: 1}, {name: "Int6", high: 2}, {name: "Table4", table: true}}

// pairs is the number of pairs of a group.
func (p packing) pairs() int {
	if p.high == 1 {
		return 4
	}
	return 2
}

// first is where the pairs of a group begin.
func (p packing) first() int { return min(p.high, 1) * quads }

// unpack makes bytes of weights. In a pair, the low half of a byte is a weight of the first 4 k, the high half one of
// the next 4.
func unpack(width width, p packing) {
	begin("unpack"+p.name+width.name, "func(dst, w *byte, wStride, blocks, groups uintptr, table *byte)",
		"makes bytes of blocks of "+p.name+" weights.")
	dst, w, blocks, stride := arg("dst"), arg("w"), arg("blocks"), arg("wStride")
	groups, n, first := asm.GP64(), asm.GP64(), p.first()
	u := newUnpacking(p, width)
	loop("block", blocks, 1, func() {
		asm.Load(asm.Param("groups"), groups)
		loop("group", groups, 1, func() {
			asm.MOVQ(U32(uint32(quads/width.bytes)), n)
			loop("column", n, 1, func() {
				high := width.reg()
				if p.high > 0 {
					asm.VMOVUPS(Mem{Base: w}, high)
				}
				for pair := range p.pairs() {
					from := Mem{Base: w, Disp: first + pair*quads}
					if width.bytes == 64 {
						asm.PREFETCHT0(from.Offset(prefetch))
					}
					low, next := width.reg(), width.reg()
					asm.VMOVUPS(from, low)
					asm.VPSRLD(Imm(4), low, next)
					for i, z := range []VecVirtual{low, next} {
						u.number(z, high, 2*pair+i)
						asm.VMOVUPS(z, Mem{Base: dst, Disp: (2*pair + i) * quads})
					}
				}
				asm.ADDQ(U32(uint32(width.bytes)), w)
				asm.ADDQ(U32(uint32(width.bytes)), dst)
			})
			asm.ADDQ(U32(uint32(first+(p.pairs()-1)*quads)), w)
			asm.ADDQ(U32(uint32((2*p.pairs()-1)*quads)), dst)
		})
		asm.ADDQ(stride, w)
	})
	end()
}

// An unpacking has what unpack keeps in registers.
type unpacking struct {
	packing
	width
	low, upper, values VecVirtual
}

func newUnpacking(p packing, width width) *unpacking {
	u := &unpacking{packing: p, width: width, low: width.constant(0x0f0f0f0f)}
	if p.table {
		u.values = width.reg()
		if width.bytes == 64 {
			asm.VBROADCASTI32X4(Mem{Base: arg("table")}, u.values)
		} else {
			asm.VBROADCASTI128(Mem{Base: arg("table")}, u.values)
		}
	}
	if p.high > 0 {
		u.upper = width.constant(0x10101010 * uint32(1<<p.high-1))
	}
	return u
}

// number makes weights of the low 4 bits of the bytes of z. high has the bits above.
func (u *unpacking) number(z, high VecVirtual, quad int) {
	wide := u.bytes == 64
	and := func(mask, z VecVirtual) {
		if wide {
			asm.VPANDD(mask, z, z)
		} else {
			asm.VPAND(mask, z, z)
		}
	}
	and(u.low, z)
	if u.table {
		asm.VPSHUFB(z, u.values, z)
	}
	if u.high == 0 {
		return
	}
	bits := u.reg()
	switch left := 4 - u.packing.high*quad; {
	case left > 0:
		asm.VPSLLD(Imm(uint64(left)), high, bits)
	case left < 0:
		asm.VPSRLD(Imm(uint64(-left)), high, bits)
	default:
		bits = high
	}
	if wide {
		asm.VPTERNLOGD(Imm(0xf8), bits, u.upper, z) // z | bits & upper
		return
	}
	masked := u.reg()
	asm.VPAND(u.upper, bits, masked)
	asm.VPOR(masked, z, z)
}

// dotRow multiplies one row by all outputs of a panel. It unpacks weights as unpack does, but into registers, and their
// sums stay in registers, too. Blocks begin with their scales. Without a packing weights are bytes.
func dotRow(p *packing) {
	name, n, ask := "Int8", 2, asm.PREFETCHT1 // 33 to 35 GB/s on a Zen 4, with PREFETCHT0 24 to 27
	if p != nil {
		name, n, ask = p.name, p.pairs(), asm.PREFETCHT0
	}
	const vectors = panel / 16
	begin("dotRow"+name+"AVX512",
		"func("+sumsOf+", x *int8, steps *uint64, w *byte, blocks, groups, shift, minima uintptr, table *byte)",
		"computes sums of a row of 8-bit activations times blocks of "+name+" weights.")
	x, w, blocks, minima := arg("x"), arg("w"), arg("blocks"), arg("minima")
	groups, scales := asm.GP64(), asm.GP64()
	steps := rowsOf("steps", "", 1)
	d := newBlockSums(steps, 1, vectors)
	var u *unpacking
	if p != nil {
		u = newUnpacking(*p, avx512)
	}
	d.load()
	load := func(at int, z VecVirtual) {
		ask(Mem{Base: w, Disp: prefetch + at})
		asm.VMOVUPS(Mem{Base: w, Disp: at}, z)
	}
	loop("block", blocks, 1, func() {
		d.begin()
		asm.MOVQ(w, scales)
		for line := range panel * 2 / 64 {
			ask(Mem{Base: scales, Disp: prefetch + line*64})
		}
		asm.ADDQ(U32(panel*2), w)
		asm.TESTQ(minima, minima)
		asm.JEQ(LabelRef("weights"))
		for line := range panel * 2 / 64 {
			ask(Mem{Base: w, Disp: prefetch + line*64})
		}
		asm.ADDQ(U32(panel*2), w)
		asm.Label("weights")
		asm.Load(asm.Param("groups"), groups)
		loop("group", groups, 1, func() {
			first, size, high := 0, 2*n*quads, make([]VecVirtual, vectors)
			if p != nil {
				first = p.first()
				size = first + n*quads
			}
			for v := 0; v < vectors && first > 0; v++ {
				high[v] = asm.ZMM()
				load(v*64, high[v])
			}
			for pair := range n {
				bs := zmms(2)
				for i, b := range bs {
					asm.VPBROADCASTD(Mem{Base: x, Disp: (2*pair + i) * 4}, b)
				}
				for v := range vectors {
					ws := zmms(2)
					if p == nil {
						load(2*pair*quads+v*64, ws[0])
						load((2*pair+1)*quads+v*64, ws[1])
					} else {
						load(first+pair*quads+v*64, ws[0])
						asm.VPSRLD(Imm(4), ws[0], ws[1])
					}
					for i, z := range ws {
						if p != nil {
							u.number(z, high[v], 2*pair+i)
						}
						asm.VPDPBUSD(bs[i], z, d.acc[0][v])
					}
				}
			}
			asm.ADDQ(U32(uint32(size)), w)
			asm.ADDQ(Imm(uint64(n*8)), x)
		})
		d.add(Mem{Base: scales}, func() { asm.TESTQ(minima, minima) })
		asm.ADDQ(Imm(stepBytes), steps.Base)
	})
	d.store()
	end()
}
