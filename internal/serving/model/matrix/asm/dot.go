package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/serving/assembly"
)

// quadBytes is the size of a panel's weights for a quad, which is 4 inputs, if each weight is a byte.
const quadBytes = panel * 4

// stepBytes is the size of a step of activations.
const stepBytes = 12

const dotProduct = "func(sums *float32, x *int8, xStride uintptr, steps *uint64, stepsStride uintptr, w *byte, " +
	"wStride uintptr, " +
	"scales *byte, scalesStride uintptr, blocks, quads, shift, minima uintptr)"

// A dot generates an AVX2 kernel. The kernel multiplies rows of 8-bit activations by the weights of 16 outputs, block
// by block, and adds the products to sums in memory. The rows of these sums are 64 values apart.
//
// The kernel reads weights as unsigned integers. If its argument minima is 0, an offset, 2 to the power of shift, was
// added to each weight. The comment of each kernel says how the kernel corrects for the offset. If minima is not 0, the
// weights have no offset, but each output has a minimum in each block. The minima are stored after the scales.
//
// The kernel adds the products of the integers of a block exactly. It converts this sum to a float and multiplies it by
// the scale of the weights. It then multiplies the result by the scale of the activations and adds it to the sum in
// memory, with one rounding. If there are minima, the kernel also adds the product of the minimum and the sum of the
// activations of the block.
type dot struct {
	width
	x, steps     *assembly.Rows
	sums, scales Register
	acc          sums // of a block
}

func newDot(w width, name string, rows, vectors int) *dot {
	begin(fmt.Sprintf("%s%sx%d", name, w.name, rows), dotProduct)
	d := &dot{width: w, sums: arg("sums"), scales: arg("scales")}
	d.x, d.steps = rowsOf("x", "xStride", rows), rowsOf("steps", "stepsStride", rows)
	d.acc = newSums(w, rows, vectors)
	return d
}

// blocks emits a loop over all blocks, and the end of the kernel. For each block, the loop runs the code of first, then
// the code of quad once for every 4 inputs, then the code of last.
func (d *dot) blocks(w Register, first, quad, last func()) {
	blocks, n := arg("blocks"), asm.GP64()
	loop("block", blocks, 1, func() {
		first()
		asm.Load(asm.Param("quads"), n)
		loop("quad", n, 1, func() {
			quad()
			asm.ADDQ(U32(quadBytes), w)
			asm.ADDQ(Imm(4), d.x.Base)
		})
		last()
		asm.ADDQ(Imm(stepBytes), d.steps.Base)
		asm.ADDQ(address("wStride"), w)
		asm.ADDQ(address("scalesStride"), d.scales)
	})
	end()
}

// scale returns the address of the scales of a vector of outputs. If minima is true, it returns the address of the
// minima of these outputs. The kernel's 16 outputs are divided into vectors, and v is the index of the vector.
func (d *dot) scale(v int, minima bool) Mem {
	m := Mem{Base: d.scales, Disp: v * d.bytes / 2}
	if minima {
		m.Disp += panel * 2
	}
	return m
}

func (d *dot) sum(r, v int) Mem { return Mem{Base: d.sums, Disp: r*panel*4 + v*d.bytes} }

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
	d.acc.each(func(r, v int, acc VecVirtual) { asm.VMOVUPS(acc, d.sum(r, v)) })
}

func (d *dot) minima(mins []VecVirtual) {
	for v, z := range mins {
		asm.VCVTPH2PS(d.scale(v, true), z)
	}
	for r := range d.acc {
		b := d.reg()
		asm.VBROADCASTSS(d.steps.At(r, 8), b)
		for v, acc := range d.acc[r] {
			asm.VFNMADD231PS(mins[v], b, acc)
		}
	}
}

// dotInt8x2 generates the kernel for 8-bit weights. The kernel subtracts the offset from the weights. It then
// multiplies the magnitudes of the weights by the activations, whose signs it changes where a weight is negative. It
// does so because the instruction VPMADDUBSW adds two products in 16 bits. The sum of two products with weights up to
// 255 could overflow; the sum of two products with magnitudes up to 128 cannot.
func dotInt8x2(rows int) {
	d := newDot(avx2, "dotInt8", rows, 2)
	w, ones, offset, shift := arg("w"), asm.YMM(), d.constant(0x01010101), asm.XMM()
	asm.VMOVQ(address("shift"), shift)
	asm.VPSLLD(shift, offset, offset)
	asm.VPCMPEQW(ones, ones, ones)
	asm.VPSRLW(Imm(15), ones, ones)
	d.blocks(w, d.acc.zero, func() {
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

// dotInt4x2 generates the kernel for 4-bit weights. The kernel adds the products of a block in lanes of 16 bits. Each
// instruction VPMADDUBSW computes the sum of two products for each lane. A block of 32 inputs needs 8 of these sums.
// They do not overflow the lane, because a product is at most 15 × 127. The kernel corrects the sum of a block for the
// offset of the weights: it subtracts the offset times the sum of the activations.
func dotInt4x2(rows int) {
	d := newDot(avx2, "dotInt4", rows, 2)
	w, ones, shift := arg("w"), asm.YMM(), asm.XMM()
	asm.VPCMPEQW(ones, ones, ones)
	asm.VPSRLW(Imm(15), ones, ones)
	asm.VMOVQ(address("shift"), shift)
	d.blocks(w, d.acc.zero, func() {
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
