package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

const dotProduct2 = "func(sums *float32, x *int8, xStride uintptr, steps *uint64, stepsStride uintptr, w *byte, wStride uintptr, " +
	"scales *byte, scalesStride uintptr, blocks, quads uintptr)"

// A dot2 is a dot kernel for 16 of the 64 outputs.
type dot2 struct {
	kind         string
	x, steps     strided
	sums, scales Register
	ones         VecVirtual // in 16 bits
	offset       VecVirtual // of 8-bit weights
	acc          [][]VecVirtual
}

// dotInt8x2 takes the offset of 8-bit weights off and gives their signs to the activations, because pairs
// of products are added in 16 bits, in which those of unsigned weights may not fit.
func dotInt8x2(rows int) {
	newDot2("Int8", rows, func(d *dot2, w Register) {
		for v := range 2 {
			signed, size := YMM(), YMM()
			VMOVDQU(Mem{Base: w, Disp: v * 32}, signed)
			VPSUBB(d.offset, signed, signed)
			VPABSB(signed, size)
			for r := range d.acc {
				b := YMM()
				VPBROADCASTD(d.x.at(r, 0), b)
				VPSIGNB(signed, b, b)
				VPMADDUBSW(b, size, b)
				VPMADDWD(d.ones, b, b)
				VPADDD(b, d.acc[r][v], d.acc[r][v])
			}
		}
	})
}

// dotInt4x2 adds all products of a block in 16 bits, in pairs: 8 × 2 × 15 × 127 fits.
func dotInt4x2(kind string, rows int) {
	newDot2(kind, rows, func(d *dot2, w Register) {
		ws := ymms(2)
		VMOVDQU(Mem{Base: w}, ws[0])
		VMOVDQU(Mem{Base: w, Disp: 32}, ws[1])
		for r := range d.acc {
			b := YMM()
			VPBROADCASTD(d.x.at(r, 0), b)
			for v, z := range d.acc[r] {
				products := YMM()
				VPMADDUBSW(b, ws[v], products)
				VPADDW(products, z, z)
			}
		}
	})
}

// newDot2 makes a kernel that calls quad for each 4 k.
func newDot2(kind string, rows int, quad func(d *dot2, w Register)) {
	name := fmt.Sprintf("dot%sAVX2x%d", kind, rows)
	TEXT(name, NOSPLIT, dotProduct2)
	Doc(fmt.Sprintf("%s adds %d rows of 8-bit activations times 16 outputs of a panel of 8-bit weights to sums.", name, rows))
	Pragma("noescape")
	d := &dot2{kind: kind, sums: Load(Param("sums"), GP64()), scales: Load(Param("scales"), GP64()), ones: YMM()}
	d.x, d.steps = loadStrided("x", "xStride", rows), loadStrided("steps", "stepsStride", rows)
	w, blocks, n := Load(Param("w"), GP64()), Load(Param("blocks"), GP64()), GP64()
	VPCMPEQW(d.ones, d.ones, d.ones)
	if kind == "Int8" {
		d.offset = YMM() // 128 in each byte
		VPSLLW(Imm(15), d.ones, d.offset)
		VPACKSSWB(d.offset, d.offset, d.offset)
	}
	VPSRLW(Imm(15), d.ones, d.ones)
	for range rows {
		d.acc = append(d.acc, ymms(2))
	}
	loop("block", blocks, 1, func() {
		for r := range d.acc {
			VPXOR(d.acc[r][0], d.acc[r][0], d.acc[r][0])
			VPXOR(d.acc[r][1], d.acc[r][1], d.acc[r][1])
		}
		Load(Param("quads"), n)
		loop("quad", n, 1, func() {
			quad(d, w)
			ADDQ(U32(quads), w)
			ADDQ(Imm(4), d.x.base)
		})
		d.end()
		ADDQ(Imm(8), d.steps.base)
		ADDQ(address("wStride"), w)
		ADDQ(address("scalesStride"), d.scales)
	})
	VZEROUPPER()
	RET()
}

// end adds the sums of a block to those of all blocks.
func (d *dot2) end() {
	for v := range 2 {
		scale, least := YMM(), YMM()
		VCVTPH2PS(Mem{Base: d.scales, Disp: v * 16}, scale)
		if d.kind == "Int4Min" {
			VCVTPH2PS(Mem{Base: d.scales, Disp: panel*2 + v*16}, least)
		}
		for r := range d.acc {
			b, sum, z := YMM(), Mem{Base: d.sums, Disp: r*panel*4 + v*32}, d.acc[r][v]
			d.whole(r, z)
			VBROADCASTSS(d.steps.at(r, 0), b)
			VCVTDQ2PS(z, z)
			VMULPS(scale, z, z)
			VFMADD213PS(sum, b, z)
			if d.kind == "Int4Min" {
				minus := YMM()
				VPBROADCASTD(d.steps.at(r, 4), minus)
				VCVTDQ2PS(minus, minus)
				VMULPS(b, minus, minus)
				VFNMADD231PS(least, minus, z)
			}
			VMOVUPS(z, sum)
		}
	}
}

// whole adds the pairs of 16 bits, and takes away what was added to weights of 4 bits.
func (d *dot2) whole(r int, z VecVirtual) {
	if d.kind == "Int8" {
		return
	}
	VPMADDWD(d.ones, z, z)
	if d.kind == "Int4" {
		minus := YMM()
		VPBROADCASTD(d.steps.at(r, 4), minus)
		VPSLLD(Imm(3), minus, minus)
		VPADDD(minus, z, z)
	}
}

// bytesOfNibbles2 is nibbles512.
func bytesOfNibbles2() {
	TEXT("nibblesAVX2", NOSPLIT, "func(dst *byte, w *byte, wStride uintptr, blocks uintptr)")
	Doc("nibblesAVX2 makes bytes of blocks of 32 × 64 nibbles.")
	Pragma("noescape")
	dst, w, blocks := Load(Param("dst"), GP64()), Load(Param("w"), GP64()), Load(Param("blocks"), GP64())
	stride, mask, fifteen, x := Load(Param("wStride"), GP64()), YMM(), GP32(), XMM()
	MOVL(U32(0x0f0f0f0f), fifteen)
	VMOVD(fifteen, x)
	VPBROADCASTD(x, mask)
	loop("block", blocks, 1, func() {
		for pair := range 4 {
			for v := range panel / 8 {
				low, high := YMM(), YMM()
				at := pair*quads + v*32
				VMOVDQU(Mem{Base: w, Disp: at}, high)
				VPAND(mask, high, low)
				VPSRLD(Imm(4), high, high)
				VPAND(mask, high, high)
				VMOVDQU(low, Mem{Base: dst, Disp: 2*pair*quads + v*32})
				VMOVDQU(high, Mem{Base: dst, Disp: (2*pair+1)*quads + v*32})
			}
		}
		ADDQ(stride, w)
		ADDQ(U32(8*quads), dst)
	})
	VZEROUPPER()
	RET()
}
