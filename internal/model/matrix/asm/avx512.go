package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

const (
	product     = "func(dst *float32, dstStride uintptr, x *float32, xStride uintptr, w *byte, k uintptr)"
	tileProduct = "func(dst *float32, dstStride uintptr, x *float32, xStride uintptr, w *byte, ahead, k uintptr)" // of AVX2
)

// zmms allocates n registers.
func zmms(n int) []VecVirtual {
	regs := make([]VecVirtual, n)
	for i := range regs {
		regs[i] = ZMM()
	}
	return regs
}

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
			VPXORD(z, z, z)
		}
	}
}

func (s sums512) store(dst strided) {
	for r := range s {
		for i, z := range s[r] {
			VMOVUPS(z, dst.at(r, i*64))
		}
	}
	VZEROUPPER()
	RET()
}

// add adds w times the value of x in each row.
func (s sums512) add(x strided, w []VecVirtual) {
	for r := range s {
		b := ZMM()
		VBROADCASTSS(x.at(r, 0), b)
		for i, z := range s[r] {
			VFMADD231PS(w[i], b, z)
		}
	}
}

// half512 multiplies by f32, f16 or bf16 weights.
func half512(rows int, kind string) {
	TEXT(fmt.Sprintf("mul%sAVX512x%d", kind, rows), NOSPLIT, product)
	Doc(fmt.Sprintf("mul%sAVX512x%d sets dst to %d rows of x times a panel of %s weights.", kind, rows, rows, kind))
	Pragma("noescape")
	dst, x := loadStrided("dst", "dstStride", rows), loadStrided("x", "xStride", rows)
	w, k := Load(Param("w"), GP64()), Load(Param("k"), GP64())
	sums := newSums512(rows)
	sums.zero()
	loop("step", k, 1, func() {
		ws := zmms(panel / 16)
		for line := 0; line < panel*sizes[kind]; line += 64 {
			PREFETCHT1(Mem{Base: w, Disp: prefetch + line})
		}
		for i, z := range ws {
			loadHalf512(kind, Mem{Base: w, Disp: i * 16 * sizes[kind]}, z)
		}
		sums.add(x, ws)
		ADDQ(Imm(4), x.base)
		ADDQ(U32(uint32(panel*sizes[kind])), w)
	})
	sums.store(dst)
}

// prefetch is how many bytes ahead weights are asked for: the processor's own
// prefetcher stops at each page of 4 KB. They are asked into the second cache:
// from there to the first they come in time by themselves, and requests for the
// first cache hold its few line buffers for as long as memory takes. That read 6 %
// more slowly on one core, 8 % on two.
const prefetch = 4096

func loadHalf512(kind string, m Mem, z VecVirtual) {
	switch kind {
	case f32:
		VMOVUPS(m, z)
	case f16:
		VCVTPH2PS(m, z)
	case bf16:
		VPMOVZXWD(m, z)
		VPSLLD(Imm(16), z, z)
	}
}

// int8x512 multiplies by blocks of 8-bit weights: 64 scales in f16, then the
// values of each k.
func int8x512(rows int) {
	TEXT(fmt.Sprintf("mulInt8AVX512x%d", rows), NOSPLIT, "func(dst *float32, dstStride uintptr, x *float32, xStride uintptr, w *byte, blocks uintptr, block uintptr)")
	Doc(fmt.Sprintf("mulInt8AVX512x%d sets dst to %d rows of x times a panel of 8-bit weights.", rows, rows))
	Pragma("noescape")
	dst, x := loadStrided("dst", "dstStride", rows), loadStrided("x", "xStride", rows)
	w, blocks := Load(Param("w"), GP64()), Load(Param("blocks"), GP64())
	sums, scales := newSums512(rows), zmms(panel/16)
	k := GP64()
	sums.zero()
	loop("block", blocks, 1, func() {
		for i, z := range scales {
			VCVTPH2PS(Mem{Base: w, Disp: i * 32}, z)
		}
		ADDQ(U32(panel*2), w)
		Load(Param("block"), k)
		loop("step", k, 1, func() {
			ws := zmms(panel / 16)
			PREFETCHT0(Mem{Base: w, Disp: prefetch})
			loadInt8x512(w, ws, scales)
			sums.add(x, ws)
			ADDQ(Imm(4), x.base)
			ADDQ(U32(panel), w)
		})
	})
	sums.store(dst)
}

func loadInt8x512(w Register, ws, scales []VecVirtual) {
	for i, z := range ws {
		VPMOVSXBD(Mem{Base: w, Disp: i * 16}, z)
		VCVTDQ2PS(z, z)
		VMULPS(scales[i], z, z)
	}
}

// int4x512 multiplies by blocks of 4-bit weights: 64 scales and 64 minima in
// f16, then bytes with the values of two k.
func int4x512(rows int) {
	TEXT(fmt.Sprintf("mulInt4AVX512x%d", rows), NOSPLIT, "func(dst *float32, dstStride uintptr, x *float32, xStride uintptr, w *byte, blocks uintptr, block uintptr)")
	Doc(fmt.Sprintf("mulInt4AVX512x%d sets dst to %d rows of x times a panel of 4-bit weights.", rows, rows))
	Pragma("noescape")
	dst, x := loadStrided("dst", "dstStride", rows), loadStrided("x", "xStride", rows)
	w, blocks := Load(Param("w"), GP64()), Load(Param("blocks"), GP64())
	sums, scales, mins, mask := newSums512(rows), zmms(panel/16), zmms(panel/16), nibbleMask()
	k := GP64()
	sums.zero()
	loop("block", blocks, 1, func() {
		loadScales512(w, scales, mins)
		Load(Param("block"), k)
		loop("step", k, 2, func() {
			PREFETCHT0(Mem{Base: w, Disp: prefetch})
			for i := range scales {
				low, high := loadInt4x512(w, i, mask, scales[i], mins[i])
				for r := range sums {
					VFMADD231PS_BCST(x.at(r, 0), low, sums[r][i])
					VFMADD231PS_BCST(x.at(r, 4), high, sums[r][i])
				}
			}
			ADDQ(Imm(8), x.base)
			ADDQ(U32(panel), w)
		})
	})
	sums.store(dst)
}

func nibbleMask() VecVirtual {
	mask, fifteen := ZMM(), GP32()
	MOVL(U32(15), fifteen)
	VPBROADCASTD(fifteen, mask)
	return mask
}

func loadScales512(w Register, scales, mins []VecVirtual) {
	for i, z := range scales {
		VCVTPH2PS(Mem{Base: w, Disp: i * 32}, z)
		VCVTPH2PS(Mem{Base: w, Disp: panel*2 + i*32}, mins[i])
	}
	ADDQ(U32(panel*4), w)
}

// loadInt4x512 makes the weights of k and k + 1 for 16 outputs.
func loadInt4x512(w Register, i int, mask, scale, min VecVirtual) (low, high VecVirtual) {
	low, high = ZMM(), ZMM()
	VPMOVZXBD(Mem{Base: w, Disp: i * 16}, high)
	VPANDD(mask, high, low)
	VPSRLD(Imm(4), high, high)
	for _, z := range []VecVirtual{low, high} {
		VCVTDQ2PS(z, z)
		VFMADD213PS(min, scale, z)
	}
	return low, high
}
