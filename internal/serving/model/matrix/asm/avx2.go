package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/serving/assembly"
)

// tile2 generates the kernel of a tile of f32 weights: 16 of the 64 outputs, as many as fit into registers.
func tile2(rows int) {
	begin(fmt.Sprintf("tileAVX2x%d", rows), tileProduct)
	dst, x := rowsOf("dst", "dstStride", rows), rowsOf("x", "xStride", rows)
	w, ahead, k := arg("w"), arg("ahead"), arg("k")
	sums := newSums(avx2, rows, 2)
	sums.each(func(r, v int, y VecVirtual) { asm.VMOVUPS(dst.At(r, v*32), y) })
	loop("step", k, 1, func() {
		ws := ymms(2)
		asm.PREFETCHT1(Mem{Base: ahead})
		asm.ADDQ(Imm(64), ahead)
		asm.VMOVUPS(Mem{Base: w}, ws[0])
		asm.VMOVUPS(Mem{Base: w, Disp: 32}, ws[1])
		for r := range sums {
			b := asm.YMM()
			asm.VBROADCASTSS(x.At(r, 0), b)
			asm.VFMADD231PS(ws[0], b, sums[r][0])
			asm.VFMADD231PS(ws[1], b, sums[r][1])
		}
		asm.ADDQ(Imm(4), x.Base)
		asm.ADDQ(U32(panel*4), w)
	})
	sums.store(dst)
}

// half2 generates the kernel that multiplies one row by f16 or bf16 weights.
func half2(kind string) {
	begin("mul"+kind+"AVX2", "func(dst *float32, x *float32, w *byte, k uintptr)")
	dst, x := arg("dst"), arg("x")
	w, k := arg("w"), arg("k")
	sums := newSums(avx2, 1, panel/8)
	sums.zero()
	loop("step", k, 1, func() {
		b := asm.YMM()
		asm.VBROADCASTSS(Mem{Base: x}, b)
		asm.PREFETCHT0(Mem{Base: w, Disp: prefetch})
		asm.PREFETCHT0(Mem{Base: w, Disp: prefetch + 64})
		for i, sum := range sums[0] {
			y := asm.YMM()
			assembly.LoadFloats(asm, kind, Mem{Base: w, Disp: i * 16}, y)
			asm.VFMADD231PS(y, b, sum)
		}
		asm.ADDQ(Imm(4), x)
		asm.ADDQ(U32(panel*2), w)
	})
	sums.store(&assembly.Rows{Base: dst})
}
