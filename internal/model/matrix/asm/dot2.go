package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

const dotProduct2 = "func(sums *float32, x *int8, xStride uintptr, steps *uint64, stepsStride uintptr, w *byte, wStride uintptr, " +
	"scales *byte, scalesStride uintptr, blocks, quads uintptr, offset uint32)"

// dot2 is dot512 for 16 of the 64 outputs. Pairs of products are added in 16 bits, in which those of
// unsigned weights of 8 bits may not fit: offset, in each of 4 bytes, is taken off the weights, and their
// signs go to the activations.
func dot2(rows int, minima bool) {
	name := "dotAVX2x"
	if minima {
		name = "dotMinAVX2x"
	}
	TEXT(fmt.Sprintf("%s%d", name, rows), NOSPLIT, dotProduct2)
	Doc(fmt.Sprintf("%s%d adds %d rows of 8-bit activations times 16 outputs of a panel of 8-bit weights to sums.", name, rows, rows))
	Pragma("noescape")
	sums, scales := Load(Param("sums"), GP64()), Load(Param("scales"), GP64())
	x, steps := loadStrided("x", "xStride", rows), loadStrided("steps", "stepsStride", rows)
	w, blocks, n := Load(Param("w"), GP64()), Load(Param("blocks"), GP64()), GP64()
	offset, ones := YMM(), YMM()
	VBROADCASTSS(address("offset"), offset)
	VPCMPEQW(ones, ones, ones)
	VPSRLW(Imm(15), ones, ones)
	acc := make([][]VecVirtual, rows)
	for r := range acc {
		acc[r] = ymms(2)
	}
	loop("block", blocks, 1, func() {
		for r := range acc {
			VPXOR(acc[r][0], acc[r][0], acc[r][0])
			VPXOR(acc[r][1], acc[r][1], acc[r][1])
		}
		Load(Param("quads"), n)
		loop("quad", n, 1, func() {
			for v := range 2 {
				signed, size := YMM(), YMM()
				VMOVDQU(Mem{Base: w, Disp: v * 32}, signed)
				VPSUBB(offset, signed, signed)
				VPABSB(signed, size)
				for r := range acc {
					b := YMM()
					VPBROADCASTD(x.at(r, 0), b)
					VPSIGNB(signed, b, b)
					VPMADDUBSW(b, size, b)
					VPMADDWD(ones, b, b)
					VPADDD(b, acc[r][v], acc[r][v])
				}
			}
			ADDQ(U32(quads), w)
			ADDQ(Imm(4), x.base)
		})
		end2(acc, sums, scales, steps, minima)
		ADDQ(Imm(8), steps.base)
		ADDQ(address("wStride"), w)
		ADDQ(address("scalesStride"), scales)
	})
	VZEROUPPER()
	RET()
}

// end2 adds the sums of a block to those of all blocks.
func end2(acc [][]VecVirtual, sums, scales Register, steps strided, minima bool) {
	for v := range 2 {
		scale, least := YMM(), YMM()
		VCVTPH2PS(Mem{Base: scales, Disp: v * 16}, scale)
		if minima {
			VCVTPH2PS(Mem{Base: scales, Disp: panel*2 + v*16}, least)
		}
		for r := range acc {
			b, sum, z := YMM(), Mem{Base: sums, Disp: r*panel*4 + v*32}, acc[r][v]
			VBROADCASTSS(steps.at(r, 0), b)
			VCVTDQ2PS(z, z)
			VMULPS(scale, z, z)
			VFMADD213PS(sum, b, z)
			if minima {
				minus := YMM()
				VPBROADCASTD(steps.at(r, 4), minus)
				VCVTDQ2PS(minus, minus)
				VMULPS(b, minus, minus)
				VFNMADD231PS(least, minus, z)
			}
			VMOVUPS(z, sum)
		}
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
