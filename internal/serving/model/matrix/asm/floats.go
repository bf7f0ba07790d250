package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/serving/assembly"
)

const (
	product = "func(dst *float32, dstStride uintptr, x *float32, xStride uintptr, w *byte, k uintptr)"
	// for AVX2
	tileProduct = "func(dst *float32, dstStride uintptr, x *float32, xStride uintptr, w *byte, prefetchAddr, k uintptr)"
)

// sums are the sums of rows of outputs.
type sums [][]VecVirtual

func newSums(w width, rows, vectors int) sums {
	s := make(sums, rows)
	for r := range s {
		s[r] = w.regs(vectors)
	}
	return s
}

func (s sums) each(f func(r, v int, z VecVirtual)) {
	for r := range s {
		for v, z := range s[r] {
			f(r, v, z)
		}
	}
}

func (s sums) zero() {
	s.each(func(_, _ int, z VecVirtual) {
		if z.Size() == 64 {
			asm.VPXORD(z, z, z)
		} else {
			asm.VPXOR(z, z, z)
		}
	})
}

func (s sums) store(dst *assembly.Rows) {
	s.each(func(r, v int, z VecVirtual) { asm.VMOVUPS(z, dst.At(r, v*int(z.Size()))) })
	end()
}

func (s sums) add(x *assembly.Rows, w []VecVirtual) {
	for r := range s {
		b := asm.ZMM()
		asm.VBROADCASTSS(x.At(r, 0), b)
		for i, z := range s[r] {
			asm.VFMADD231PS(w[i], b, z)
		}
	}
}

func half512(rows int, kind string) {
	begin(fmt.Sprintf("mul%sAVX512x%d", kind, rows), product)
	dst, x := rowsOf("dst", "dstStride", rows), rowsOf("x", "xStride", rows)
	w, k := arg("w"), arg("k")
	sums := newSums(avx512, rows, panel/16)
	sums.zero()
	loop("step", k, 1, func() {
		ws := zmms(panel / 16)
		for line := 0; line < panel*sizes[kind]; line += 64 {
			asm.PREFETCHT1(Mem{Base: w, Disp: prefetch + line})
		}
		for i, z := range ws {
			assembly.LoadFloats(asm, kind, Mem{Base: w, Disp: i * 16 * sizes[kind]}, z)
		}
		sums.add(x, ws)
		asm.ADDQ(Imm(4), x.Base)
		asm.ADDQ(U32(uint32(panel*sizes[kind])), w)
	})
	sums.store(dst)
}

// prefetch is the distance in bytes from the weights that a kernel reads to the weights that it prefetches. Kernels
// prefetch because the processor's own prefetcher stops at the end of each page of 4 KB.
//
// Some kernels are limited by the speed of memory. They prefetch weights to the second-level cache, from which the
// weights reach the first-level cache in time. Each prefetch to the first-level cache would occupy one of the few line
// buffers of this cache until memory answers. Such prefetches made reading 6 % slower on one core and 8 % slower on
// two.
const prefetch = 4096

func blocks512(rows int, kind kind) {
	begin(fmt.Sprintf("mul%sAVX512x%d", kind.name, rows),
		"func(dst *float32, dstStride uintptr, x *float32, xStride uintptr, w *byte, blocks, block uintptr"+kind.table()+")")
	dst, x := rowsOf("dst", "dstStride", rows), rowsOf("x", "xStride", rows)
	sums, block := newSums(avx512, rows, panel/16), newBlock(avx512, kind, panel/16)
	sums.zero()
	block.all(arg("w"), func(w, n Register) {
		loop("step", n, kind.inputsPerStep(), func() {
			asm.PREFETCHT0(Mem{Base: w, Disp: prefetch})
			if kind.bits == 8 {
				ws := zmms(panel / 16)
				for i, z := range ws {
					block.load8(w, i, z)
				}
				sums.add(x, ws)
			} else {
				for i := range panel / 16 {
					low, high := block.load4(w, i)
					for r := range sums {
						asm.VFMADD231PS_BCST(x.At(r, 0), low, sums[r][i])
						asm.VFMADD231PS_BCST(x.At(r, 4), high, sums[r][i])
					}
				}
			}
			asm.ADDQ(Imm(uint64(4*kind.inputsPerStep())), x.Base)
			asm.ADDQ(U32(panel), w)
		})
	})
	sums.store(dst)
}

// tile2 generates the AVX2 kernel for f32 weights. A call computes 16 of the 64 outputs of a panel, as many as fit
// into registers.
func tile2(rows int) {
	begin(fmt.Sprintf("tileAVX2x%d", rows), tileProduct)
	dst, x := rowsOf("dst", "dstStride", rows), rowsOf("x", "xStride", rows)
	w, prefetchAddr, k := arg("w"), arg("prefetchAddr"), arg("k")
	sums := newSums(avx2, rows, 2)
	sums.each(func(r, v int, y VecVirtual) { asm.VMOVUPS(dst.At(r, v*32), y) })
	loop("step", k, 1, func() {
		ws := ymms(2)
		asm.PREFETCHT1(Mem{Base: prefetchAddr})
		asm.ADDQ(Imm(64), prefetchAddr)
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
