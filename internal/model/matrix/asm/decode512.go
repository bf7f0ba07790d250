package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// decodeHalf512 turns a panel of k × 64 weights into f32.
func decodeHalf512(kind string) {
	TEXT("decode"+kind+"AVX512", NOSPLIT, "func(dst *float32, w *byte, k uintptr)")
	Doc("decode" + kind + "AVX512 writes k × 64 weights as f32.")
	Pragma("noescape")
	dst, w, k := Load(Param("dst"), GP64()), Load(Param("w"), GP64()), Load(Param("k"), GP64())
	loop("step", k, 1, func() {
		for i, z := range zmms(panel / 16) {
			loadHalf512(kind, Mem{Base: w, Disp: i * 32}, z)
			VMOVUPS(z, Mem{Base: dst, Disp: i * 64})
		}
		ADDQ(U32(panel*2), w)
		ADDQ(U32(panel*4), dst)
	})
	VZEROUPPER()
	RET()
}

const decodeBlocks = "func(dst *float32, w *byte, blocks uintptr, block uintptr)"

// decodeInt8x512 does so with blocks of 8-bit weights.
func decodeInt8x512() {
	TEXT("decodeInt8AVX512", NOSPLIT, decodeBlocks)
	Doc("decodeInt8AVX512 writes blocks of 8-bit weights as f32.")
	Pragma("noescape")
	dst, w, blocks := Load(Param("dst"), GP64()), Load(Param("w"), GP64()), Load(Param("blocks"), GP64())
	scales, k := zmms(panel/16), GP64()
	loop("block", blocks, 1, func() {
		for i, z := range scales {
			VCVTPH2PS(Mem{Base: w, Disp: i * 32}, z)
		}
		ADDQ(U32(panel*2), w)
		Load(Param("block"), k)
		loop("step", k, 1, func() {
			ws := zmms(panel / 16)
			loadInt8x512(w, ws, scales)
			for i, z := range ws {
				VMOVUPS(z, Mem{Base: dst, Disp: i * 64})
			}
			ADDQ(U32(panel), w)
			ADDQ(U32(panel*4), dst)
		})
	})
	VZEROUPPER()
	RET()
}

// decodeInt4x512 does so with blocks of 4-bit weights.
func decodeInt4x512() {
	TEXT("decodeInt4AVX512", NOSPLIT, decodeBlocks)
	Doc("decodeInt4AVX512 writes blocks of 4-bit weights as f32.")
	Pragma("noescape")
	dst, w, blocks := Load(Param("dst"), GP64()), Load(Param("w"), GP64()), Load(Param("blocks"), GP64())
	scales, mins, mask, k := zmms(panel/16), zmms(panel/16), nibbleMask(), GP64()
	loop("block", blocks, 1, func() {
		loadScales512(w, scales, mins)
		Load(Param("block"), k)
		loop("step", k, 2, func() {
			for i := range scales {
				low, high := loadInt4x512(w, i, mask, scales[i], mins[i])
				VMOVUPS(low, Mem{Base: dst, Disp: i * 64})
				VMOVUPS(high, Mem{Base: dst, Disp: panel*4 + i*64})
			}
			ADDQ(U32(panel), w)
			ADDQ(U32(panel*8), dst)
		})
	})
	VZEROUPPER()
	RET()
}
