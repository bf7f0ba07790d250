package main

import (
	"math"

	. "github.com/mmcloughlin/avo/operand"
)

// shorten generates the kernel that rounds a multiple of 16 values to BF16, as package matrix's short does. It writes
// f32, or pairs whose first value is in the high half. It takes 1 % of the time of a prompt, so AVX2 is enough.
func shorten(name string, paired bool) {
	begin(name, "func(dst *float32, x *float32, n uintptr)")
	dst, x, n := arg("dst"), arg("x"), arg("n")
	magnitude, half, one := avx2.constant(0x7fffffff), avx2.constant(0x7fff), avx2.constant(1)
	infinity, quiet, high := avx2.constant(0x7f800000), avx2.constant(0x00400000), avx2.constant(0xffff0000)
	below := avx2.constant(math.Float32bits(1.0/(1<<56)) - 1)
	loop("step", n, 16, func() {
		rounded := ymms(2)
		for i, r := range rounded {
			v, size, nan := asm.YMM(), asm.YMM(), asm.YMM()
			asm.VMOVUPS(Mem{Base: x, Disp: i * 32}, v)
			asm.VPAND(magnitude, v, size)
			asm.VPSRLD(Imm(16), v, r)
			asm.VPAND(one, r, r)
			asm.VPADDD(half, r, r)
			asm.VPADDD(v, r, r)
			asm.VPOR(quiet, v, v)
			asm.VPCMPGTD(infinity, size, nan)
			asm.VBLENDVPS(nan, v, r, r)
			asm.VPCMPGTD(below, size, size)
			asm.VPAND(size, r, r)
			asm.VPAND(high, r, r)
			if paired {
				asm.VPSRLQ(Imm(48), r, v)
				asm.VPOR(v, r, r)
			} else {
				asm.VMOVUPS(r, Mem{Base: dst, Disp: i * 32})
			}
		}
		if paired {
			asm.VSHUFPS(Imm(0x88), rounded[1], rounded[0], rounded[0])
			asm.VPERMQ(Imm(0xd8), rounded[0], rounded[0])
			asm.VMOVUPS(rounded[0], Mem{Base: dst})
			asm.ADDQ(Imm(32), dst)
		} else {
			asm.ADDQ(Imm(64), dst)
		}
		asm.ADDQ(Imm(64), x)
	})
	end()
}
