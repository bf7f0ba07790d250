package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/assembly"
)

const (
	product = "func(dst *float32, dstStride uintptr, x *float32, xStride uintptr, w *byte, k uintptr)"
	// of AVX2
	tileProduct = "func(dst *float32, dstStride uintptr, x *float32, xStride uintptr, w *byte, ahead, k uintptr)"
)

// sums512 are the sums of rows × 64 outputs.
type sums512 [][]VecVirtual

func newSums512(rows int) sums512 {
	s := make(sums512, rows)
	for r := range s {
		s[r] = zmms(panel / 16)
	}
	return s
}

func (s sums512) zero() {
	for r := range s {
		for _, z := range s[r] {
			asm.VPXORD(z, z, z)
		}
	}
}

func (s sums512) store(dst *assembly.Rows) {
	for r := range s {
		for i, z := range s[r] {
			asm.VMOVUPS(z, dst.At(r, i*64))
		}
	}
	end()
}

// add adds w times the value of x in each row.
func (s sums512) add(x *assembly.Rows, w []VecVirtual) {
	for r := range s {
		b := asm.ZMM()
		asm.VBROADCASTSS(x.At(r, 0), b)
		for i, z := range s[r] {
			asm.VFMADD231PS(w[i], b, z)
		}
	}
}

// half512 multiplies by f32, f16 or bf16 weights.
func half512(rows int, kind string) {
	begin(fmt.Sprintf("mul%sAVX512x%d", kind, rows), product,
		fmt.Sprintf("sets dst to %d rows of x times a panel of %s weights.", rows, kind))
	dst, x := rowsOf("dst", "dstStride", rows), rowsOf("x", "xStride", rows)
	w, k := arg("w"), arg("k")
	sums := newSums512(rows)
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

// prefetch is the distance, in bytes, at which weights are prefetched: the processor's own
// prefetcher stops at each page of 4 KB. They are asked into the second cache:
// from there to the first they come in time by themselves, and requests for the
// first cache occupy its few line buffers for as long as memory takes. That read 6 %
// more slowly on one core, 8 % on two.
const prefetch = 4096

// int8x512 multiplies by blocks of 8-bit weights: 64 scales in f16, then the
// values of each k.
func int8x512(rows int) {
	begin(fmt.Sprintf("mulInt8AVX512x%d", rows),
		"func(dst *float32, dstStride uintptr, x *float32, xStride uintptr, w *byte, blocks uintptr, block uintptr)",
		fmt.Sprintf("sets dst to %d rows of x times a panel of 8-bit weights.", rows))
	dst, x := rowsOf("dst", "dstStride", rows), rowsOf("x", "xStride", rows)
	w, blocks := arg("w"), arg("blocks")
	sums, scales := newSums512(rows), zmms(panel/16)
	k := asm.GP64()
	sums.zero()
	loop("block", blocks, 1, func() {
		for i, z := range scales {
			asm.VCVTPH2PS(Mem{Base: w, Disp: i * 32}, z)
		}
		asm.ADDQ(U32(panel*2), w)
		asm.Load(asm.Param("block"), k)
		loop("step", k, 1, func() {
			ws := zmms(panel / 16)
			asm.PREFETCHT0(Mem{Base: w, Disp: prefetch})
			loadInt8x512(w, ws, scales)
			sums.add(x, ws)
			asm.ADDQ(Imm(4), x.Base)
			asm.ADDQ(U32(panel), w)
		})
	})
	sums.store(dst)
}

func loadInt8x512(w Register, ws, scales []VecVirtual) {
	for i, z := range ws {
		asm.VPMOVSXBD(Mem{Base: w, Disp: i * 16}, z)
		asm.VCVTDQ2PS(z, z)
		asm.VMULPS(scales[i], z, z)
	}
}

// int4x512 multiplies by blocks of 4-bit weights: 64 scales and 64 minima in
// f16, then bytes with the values of two k.
func int4x512(rows int) {
	begin(fmt.Sprintf("mulInt4AVX512x%d", rows),
		"func(dst *float32, dstStride uintptr, x *float32, xStride uintptr, w *byte, blocks uintptr, block uintptr)",
		fmt.Sprintf("sets dst to %d rows of x times a panel of 4-bit weights.", rows))
	dst, x := rowsOf("dst", "dstStride", rows), rowsOf("x", "xStride", rows)
	w, blocks := arg("w"), arg("blocks")
	sums, scales, mins, mask := newSums512(rows), zmms(panel/16), zmms(panel/16), nibbleMask()
	k := asm.GP64()
	sums.zero()
	loop("block", blocks, 1, func() {
		loadScales512(w, scales, mins)
		asm.Load(asm.Param("block"), k)
		loop("step", k, 2, func() {
			asm.PREFETCHT0(Mem{Base: w, Disp: prefetch})
			for i := range scales {
				low, high := loadInt4x512(w, i, mask, scales[i], mins[i])
				for r := range sums {
					asm.VFMADD231PS_BCST(x.At(r, 0), low, sums[r][i])
					asm.VFMADD231PS_BCST(x.At(r, 4), high, sums[r][i])
				}
			}
			asm.ADDQ(Imm(8), x.Base)
			asm.ADDQ(U32(panel), w)
		})
	})
	sums.store(dst)
}

func nibbleMask() VecVirtual {
	mask, fifteen := asm.ZMM(), asm.GP32()
	asm.MOVL(U32(15), fifteen)
	asm.VPBROADCASTD(fifteen, mask)
	return mask
}

func loadScales512(w Register, scales, mins []VecVirtual) {
	for i, z := range scales {
		asm.VCVTPH2PS(Mem{Base: w, Disp: i * 32}, z)
		asm.VCVTPH2PS(Mem{Base: w, Disp: panel*2 + i*32}, mins[i])
	}
	asm.ADDQ(U32(panel*4), w)
}

// loadInt4x512 makes the weights of k and k + 1 for 16 outputs.
func loadInt4x512(w Register, i int, mask, scale, min VecVirtual) (low, high VecVirtual) {
	low, high = asm.ZMM(), asm.ZMM()
	asm.VPMOVZXBD(Mem{Base: w, Disp: i * 16}, high)
	asm.VPANDD(mask, high, low)
	asm.VPSRLD(Imm(4), high, high)
	for _, z := range []VecVirtual{low, high} {
		asm.VCVTDQ2PS(z, z)
		asm.VFMADD213PS(min, scale, z)
	}
	return low, high
}
