package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// quads is how many bytes the weights of 4 k of a panel take, when each is a byte.
const quads = panel * 4

const dotProduct = "func(sums *float32, x *int8, xStride uintptr, steps *uint64, stepsStride uintptr, w *byte, wStride uintptr, " +
	"scales *byte, scalesStride uintptr, ahead, aheadStep uintptr, blocks, quads, shift uintptr)"

// A dot kernel adds rows of 8-bit activations times blocks of a panel of 8-bit weights to sums, which
// are 64 values a row. Weights are unsigned: 2 to the power of shift are added to each, and the sums of
// activations in steps, which are negative, take that away again. The sum of a block is exact; it becomes a
// float, is multiplied by the weights' scale, and added, times the activations' scale, with one rounding.
type dot struct {
	x, steps     strided
	sums, scales Register
	acc          [][]VecVirtual
}

func (d *dot) sum(r, v int) Mem { return Mem{Base: d.sums, Disp: r*panel*4 + v*64} }

// begin sets the sums of a block.
func (d *dot) begin(shift VecVirtual) {
	for r := range d.acc {
		z := ZMM()
		VPBROADCASTD(d.steps.at(r, 4), z)
		VPSLLD(shift, z, z)
		for _, acc := range d.acc[r] {
			VMOVDQA32(z, acc)
		}
	}
}

// end adds the sums of a block to those of all blocks.
func (d *dot) end(minima bool) {
	scales := zmms(panel / 16)
	for v, z := range scales {
		VCVTPH2PS(Mem{Base: d.scales, Disp: v * 32}, z)
	}
	for r := range d.acc {
		b := ZMM()
		VBROADCASTSS(d.steps.at(r, 0), b)
		for v, acc := range d.acc[r] {
			VCVTDQ2PS(acc, acc)
			VMULPS(scales[v], acc, acc)
			VFMADD213PS(d.sum(r, v), b, acc)
			if !minima {
				VMOVUPS(acc, d.sum(r, v))
			}
		}
	}
	if minima {
		d.minima(scales)
	}
}

// minima subtracts the minima of a block times the negative sum of its activations.
func (d *dot) minima(least []VecVirtual) {
	for v, z := range least {
		VCVTPH2PS(Mem{Base: d.scales, Disp: panel*2 + v*32}, z)
	}
	for r := range d.acc {
		b := ZMM()
		VPBROADCASTD(d.steps.at(r, 4), b)
		VCVTDQ2PS(b, b)
		VMULPS_BCST(d.steps.at(r, 0), b, b)
		for v, acc := range d.acc[r] {
			VFNMADD231PS(least[v], b, acc)
			VMOVUPS(acc, d.sum(r, v))
		}
	}
}

func dot512(rows int, minima bool) {
	name := "dotAVX512x"
	if minima {
		name = "dotMinAVX512x"
	}
	TEXT(fmt.Sprintf("%s%d", name, rows), NOSPLIT, dotProduct)
	Doc(fmt.Sprintf("%s%d adds %d rows of 8-bit activations times a panel of 8-bit weights to sums.", name, rows, rows))
	Pragma("noescape")
	d := &dot{sums: Load(Param("sums"), GP64()), scales: Load(Param("scales"), GP64())}
	d.x, d.steps = loadStrided("x", "xStride", rows), loadStrided("steps", "stepsStride", rows)
	w, ahead, blocks, n := Load(Param("w"), GP64()), Load(Param("ahead"), GP64()), Load(Param("blocks"), GP64()), GP64()
	shift := XMM()
	VMOVQ(address("shift"), shift)
	for range rows {
		d.acc = append(d.acc, zmms(panel/16))
	}
	loop("block", blocks, 1, func() {
		d.begin(shift)
		Load(Param("quads"), n)
		loop("quad", n, 1, func() {
			ws := zmms(panel / 16)
			PREFETCHT0(Mem{Base: ahead})
			ADDQ(address("aheadStep"), ahead)
			for v, z := range ws {
				VMOVDQU32(Mem{Base: w, Disp: v * 64}, z)
			}
			for r := range d.acc {
				b := ZMM()
				VPBROADCASTD(d.x.at(r, 0), b)
				for v, acc := range d.acc[r] {
					VPDPBUSD(b, ws[v], acc)
				}
			}
			ADDQ(U32(quads), w)
			ADDQ(Imm(4), d.x.base)
		})
		d.end(minima)
		ADDQ(Imm(8), d.steps.base)
		ADDQ(address("wStride"), w)
		ADDQ(address("scalesStride"), d.scales)
	})
	VZEROUPPER()
	RET()
}

// nibbles512 makes bytes of blocks of nibbles: of each 256 bytes, the low ones are the weights of 4 k and
// the high ones those of the next 4.
func nibbles512() {
	TEXT("nibblesAVX512", NOSPLIT, "func(dst *byte, w *byte, wStride uintptr, blocks uintptr)")
	Doc("nibblesAVX512 makes bytes of blocks of 32 × 64 nibbles.")
	Pragma("noescape")
	dst, w, blocks := Load(Param("dst"), GP64()), Load(Param("w"), GP64()), Load(Param("blocks"), GP64())
	stride, mask, fifteen := Load(Param("wStride"), GP64()), ZMM(), GP32()
	MOVL(U32(0x0f0f0f0f), fifteen)
	VPBROADCASTD(fifteen, mask)
	loop("block", blocks, 1, func() {
		for pair := range 4 {
			for v := range panel / 16 {
				low, high := ZMM(), ZMM()
				at := pair*quads + v*64
				PREFETCHT0(Mem{Base: w, Disp: prefetch + at})
				VMOVDQU32(Mem{Base: w, Disp: at}, high)
				VPANDD(mask, high, low)
				VPSRLD(Imm(4), high, high)
				VPANDD(mask, high, high)
				VMOVDQU32(low, Mem{Base: dst, Disp: 2*pair*quads + v*64})
				VMOVDQU32(high, Mem{Base: dst, Disp: (2*pair+1)*quads + v*64})
			}
		}
		ADDQ(stride, w)
		ADDQ(U32(8*quads), dst)
	})
	VZEROUPPER()
	RET()
}
