package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/assembly"
)

// decodeHalf turns a panel of k × 64 weights into f32.
func decodeHalf(w width, kind string) {
	begin("decode"+kind+w.name, "func(dst *float32, w *byte, k uintptr)", "writes k × 64 weights as f32.")
	dst, from, k := arg("dst"), arg("w"), arg("k")
	loop("step", k, 1, func() {
		for i, z := range w.regs(panel * 4 / w.bytes) {
			assembly.LoadFloats(asm, kind, Mem{Base: from, Disp: i * w.bytes / 2}, z)
			asm.VMOVUPS(z, Mem{Base: dst, Disp: i * w.bytes})
		}
		asm.ADDQ(U32(panel*2), from)
		asm.ADDQ(U32(panel*4), dst)
	})
	end()
}

const decodeBlocks = "func(dst *float32, w *byte, blocks uintptr, block uintptr)"

// decodeInt8x512 turns blocks of 8-bit weights into f32.
func decodeInt8x512() {
	begin("decodeInt8AVX512", decodeBlocks, "writes blocks of 8-bit weights as f32.")
	dst, w, blocks := arg("dst"), arg("w"), arg("blocks")
	scales, k := zmms(panel/16), asm.GP64()
	loop("block", blocks, 1, func() {
		for i, z := range scales {
			asm.VCVTPH2PS(Mem{Base: w, Disp: i * 32}, z)
		}
		asm.ADDQ(U32(panel*2), w)
		asm.Load(asm.Param("block"), k)
		loop("step", k, 1, func() {
			ws := zmms(panel / 16)
			loadInt8x512(w, ws, scales)
			for i, z := range ws {
				asm.VMOVUPS(z, Mem{Base: dst, Disp: i * 64})
			}
			asm.ADDQ(U32(panel), w)
			asm.ADDQ(U32(panel*4), dst)
		})
	})
	end()
}

// decodeInt4x512 turns blocks of 4-bit weights into f32.
func decodeInt4x512() {
	begin("decodeInt4AVX512", decodeBlocks, "writes blocks of 4-bit weights as f32.")
	dst, w, blocks := arg("dst"), arg("w"), arg("blocks")
	scales, mins, mask, k := zmms(panel/16), zmms(panel/16), nibbleMask(), asm.GP64()
	loop("block", blocks, 1, func() {
		loadScales512(w, scales, mins)
		asm.Load(asm.Param("block"), k)
		loop("step", k, 2, func() {
			for i := range scales {
				low, high := loadInt4x512(w, i, mask, scales[i], mins[i])
				asm.VMOVUPS(low, Mem{Base: dst, Disp: i * 64})
				asm.VMOVUPS(high, Mem{Base: dst, Disp: panel*4 + i*64})
			}
			asm.ADDQ(U32(panel), w)
			asm.ADDQ(U32(panel*8), dst)
		})
	})
	end()
}

// decodeInt8x2 keeps the eight scales of a block in registers.
func decodeInt8x2() {
	begin("decodeInt8AVX2", decodeBlocks, "writes blocks of 8-bit weights as f32.")
	dst, w, blocks := arg("dst"), arg("w"), arg("blocks")
	scales, k := ymms(panel/8), asm.GP64()
	loop("block", blocks, 1, func() {
		for i, y := range scales {
			asm.VCVTPH2PS(Mem{Base: w, Disp: i * 16}, y)
		}
		asm.ADDQ(U32(panel*2), w)
		asm.Load(asm.Param("block"), k)
		loop("step", k, 1, func() {
			for i, scale := range scales {
				y := asm.YMM()
				asm.VPMOVSXBD(Mem{Base: w, Disp: i * 8}, y)
				asm.VCVTDQ2PS(y, y)
				asm.VMULPS(scale, y, y)
				asm.VMOVUPS(y, Mem{Base: dst, Disp: i * 32})
			}
			asm.ADDQ(U32(panel), w)
			asm.ADDQ(U32(panel*4), dst)
		})
	})
	end()
}

// decodeInt4x2 goes over a block twice, with the scales and minima of 32
// outputs each time: those of 64 do not fit into the registers.
func decodeInt4x2() {
	begin("decodeInt4AVX2", decodeBlocks, "writes blocks of 4-bit weights as f32.")
	dst, w, blocks := arg("dst"), arg("w"), arg("blocks")
	scales, mins := ymms(4), ymms(4)
	mask, fifteen, k := asm.YMM(), asm.GP32(), asm.GP64()
	asm.MOVL(U32(15), fifteen)
	x := asm.XMM()
	asm.VMOVD(fifteen, x)
	asm.VPBROADCASTD(x, mask)
	loop("block", blocks, 1, func() {
		var from, to Register
		for half := range 2 {
			from, to = asm.GP64(), asm.GP64()
			asm.MOVQ(w, from)
			asm.MOVQ(dst, to)
			for i := range 4 {
				asm.VCVTPH2PS(Mem{Base: w, Disp: half*64 + i*16}, scales[i])
				asm.VCVTPH2PS(Mem{Base: w, Disp: panel*2 + half*64 + i*16}, mins[i])
			}
			asm.ADDQ(U32(panel*4), from)
			asm.Load(asm.Param("block"), k)
			loop(fmt.Sprintf("half%d", half), k, 2, func() {
				for i := range 4 {
					nibbles2(from, to, half*4+i, mask, scales[i], mins[i])
				}
				asm.ADDQ(U32(panel), from)
				asm.ADDQ(U32(panel*8), to)
			})
		}
		asm.MOVQ(from, w)
		asm.MOVQ(to, dst)
	})
	end()
}

func nibbles2(from, to Register, i int, mask, scale, min VecVirtual) {
	low, high := asm.YMM(), asm.YMM()
	asm.VPMOVZXBD(Mem{Base: from, Disp: i * 8}, high)
	asm.VPAND(mask, high, low)
	asm.VPSRLD(Imm(4), high, high)
	for j, y := range []VecVirtual{low, high} {
		asm.VCVTDQ2PS(y, y)
		asm.VFMADD213PS(min, scale, y)
		asm.VMOVUPS(y, Mem{Base: to, Disp: j*panel*4 + i*32})
	}
}
