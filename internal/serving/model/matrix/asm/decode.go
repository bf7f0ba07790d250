package main

import (
	. "github.com/mmcloughlin/avo/operand"

	"llmmemory/internal/serving/assembly"
)

// decodeHalf generates the kernel that converts a panel of k × 64 weights to f32.
func decodeHalf(w width, kind string) {
	begin("decode"+kind+w.name, "func(dst *float32, w *byte, k uintptr)")
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
