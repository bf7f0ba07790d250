package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

func ymms(n int) []VecVirtual {
	regs := make([]VecVirtual, n)
	for i := range regs {
		regs[i] = YMM()
	}
	return regs
}

// tile2 is tile512 for 16 of the 64 outputs, which are all that fit.
func tile2(rows int) {
	TEXT(fmt.Sprintf("tileAVX2x%d", rows), NOSPLIT, tileProduct)
	Doc(fmt.Sprintf("tileAVX2x%d adds %d rows of x times 16 outputs of a panel of f32 weights to dst.", rows, rows))
	Pragma("noescape")
	dst, x := loadStrided("dst", "dstStride", rows), loadStrided("x", "xStride", rows)
	w, ahead, k := Load(Param("w"), GP64()), Load(Param("ahead"), GP64()), Load(Param("k"), GP64())
	sums := make([][]VecVirtual, rows)
	for r := range sums {
		sums[r] = ymms(2)
		VMOVUPS(dst.at(r, 0), sums[r][0])
		VMOVUPS(dst.at(r, 32), sums[r][1])
	}
	loop("step", k, 1, func() {
		ws := ymms(2)
		PREFETCHT1(Mem{Base: ahead})
		ADDQ(Imm(64), ahead)
		VMOVUPS(Mem{Base: w}, ws[0])
		VMOVUPS(Mem{Base: w, Disp: 32}, ws[1])
		for r := range sums {
			b := YMM()
			VBROADCASTSS(x.at(r, 0), b)
			VFMADD231PS(ws[0], b, sums[r][0])
			VFMADD231PS(ws[1], b, sums[r][1])
		}
		ADDQ(Imm(4), x.base)
		ADDQ(U32(panel*4), w)
	})
	for r := range sums {
		VMOVUPS(sums[r][0], dst.at(r, 0))
		VMOVUPS(sums[r][1], dst.at(r, 32))
	}
	VZEROUPPER()
	RET()
}

// half2 multiplies one row by f16 or bf16 weights.
func half2(kind string) {
	TEXT("mul"+kind+"AVX2", NOSPLIT, "func(dst *float32, x *float32, w *byte, k uintptr)")
	Doc("mul" + kind + "AVX2 sets dst to a row of x times a panel of " + kind + " weights.")
	Pragma("noescape")
	dst, x := Load(Param("dst"), GP64()), Load(Param("x"), GP64())
	w, k := Load(Param("w"), GP64()), Load(Param("k"), GP64())
	sums := ymms(panel / 8)
	for _, y := range sums {
		VPXOR(y, y, y)
	}
	loop("step", k, 1, func() {
		b := YMM()
		VBROADCASTSS(Mem{Base: x}, b)
		PREFETCHT0(Mem{Base: w, Disp: prefetch})
		PREFETCHT0(Mem{Base: w, Disp: prefetch + 64})
		for i, sum := range sums {
			y := YMM()
			loadHalf2(kind, Mem{Base: w, Disp: i * 16}, y)
			VFMADD231PS(y, b, sum)
		}
		ADDQ(Imm(4), x)
		ADDQ(U32(panel*2), w)
	})
	for i, y := range sums {
		VMOVUPS(y, Mem{Base: dst, Disp: i * 32})
	}
	VZEROUPPER()
	RET()
}

func loadHalf2(kind string, m Mem, y VecVirtual) {
	if kind == f16 {
		VCVTPH2PS(m, y)
		return
	}
	VPMOVZXWD(m, y)
	VPSLLD(Imm(16), y, y)
}

func decodeHalf2(kind string) {
	TEXT("decode"+kind+"AVX2", NOSPLIT, "func(dst *float32, w *byte, k uintptr)")
	Doc("decode" + kind + "AVX2 writes k × 64 weights as f32.")
	Pragma("noescape")
	dst, w, k := Load(Param("dst"), GP64()), Load(Param("w"), GP64()), Load(Param("k"), GP64())
	loop("step", k, 1, func() {
		for i, y := range ymms(panel / 8) {
			loadHalf2(kind, Mem{Base: w, Disp: i * 16}, y)
			VMOVUPS(y, Mem{Base: dst, Disp: i * 32})
		}
		ADDQ(U32(panel*2), w)
		ADDQ(U32(panel*4), dst)
	})
	VZEROUPPER()
	RET()
}

// decodeInt8x2 keeps the eight scales of a block in registers.
func decodeInt8x2() {
	TEXT("decodeInt8AVX2", NOSPLIT, decodeBlocks)
	Doc("decodeInt8AVX2 writes blocks of 8-bit weights as f32.")
	Pragma("noescape")
	dst, w, blocks := Load(Param("dst"), GP64()), Load(Param("w"), GP64()), Load(Param("blocks"), GP64())
	scales, k := ymms(panel/8), GP64()
	loop("block", blocks, 1, func() {
		for i, y := range scales {
			VCVTPH2PS(Mem{Base: w, Disp: i * 16}, y)
		}
		ADDQ(U32(panel*2), w)
		Load(Param("block"), k)
		loop("step", k, 1, func() {
			for i, scale := range scales {
				y := YMM()
				VPMOVSXBD(Mem{Base: w, Disp: i * 8}, y)
				VCVTDQ2PS(y, y)
				VMULPS(scale, y, y)
				VMOVUPS(y, Mem{Base: dst, Disp: i * 32})
			}
			ADDQ(U32(panel), w)
			ADDQ(U32(panel*4), dst)
		})
	})
	VZEROUPPER()
	RET()
}

// decodeInt4x2 goes over a block twice, with the scales and minima of 32
// outputs each time: those of 64 do not fit into the registers.
func decodeInt4x2() {
	TEXT("decodeInt4AVX2", NOSPLIT, decodeBlocks)
	Doc("decodeInt4AVX2 writes blocks of 4-bit weights as f32.")
	Pragma("noescape")
	dst, w, blocks := Load(Param("dst"), GP64()), Load(Param("w"), GP64()), Load(Param("blocks"), GP64())
	scales, mins := ymms(4), ymms(4)
	mask, fifteen, k := YMM(), GP32(), GP64()
	MOVL(U32(15), fifteen)
	x := XMM()
	VMOVD(fifteen, x)
	VPBROADCASTD(x, mask)
	loop("block", blocks, 1, func() {
		var from, to Register
		for half := range 2 {
			from, to = GP64(), GP64()
			MOVQ(w, from)
			MOVQ(dst, to)
			for i := range 4 {
				VCVTPH2PS(Mem{Base: w, Disp: half*64 + i*16}, scales[i])
				VCVTPH2PS(Mem{Base: w, Disp: panel*2 + half*64 + i*16}, mins[i])
			}
			ADDQ(U32(panel*4), from)
			Load(Param("block"), k)
			loop(fmt.Sprintf("half%d", half), k, 2, func() {
				for i := range 4 {
					nibbles2(from, to, half*4+i, mask, scales[i], mins[i])
				}
				ADDQ(U32(panel), from)
				ADDQ(U32(panel*8), to)
			})
		}
		MOVQ(from, w)
		MOVQ(to, dst)
	})
	VZEROUPPER()
	RET()
}

func nibbles2(from, to Register, i int, mask, scale, min VecVirtual) {
	low, high := YMM(), YMM()
	VPMOVZXBD(Mem{Base: from, Disp: i * 8}, high)
	VPAND(mask, high, low)
	VPSRLD(Imm(4), high, high)
	for j, y := range []VecVirtual{low, high} {
		VCVTDQ2PS(y, y)
		VFMADD213PS(min, scale, y)
		VMOVUPS(y, Mem{Base: to, Disp: j*panel*4 + i*32})
	}
}
