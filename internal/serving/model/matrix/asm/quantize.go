package main

import (
	"math"

	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

const quantizeBlocks = "func(q *int8, steps32, steps16 *uint64, x *float32, blocks uintptr)"

// A quantizer generates a kernel that rounds blocks of 32 activations to 8 bits, with the same operations as
// quantizeBlock of package matrix. The kernel stores a step for each block and one for each half of a block.
type quantizer struct {
	q, x, blocks, steps32, steps16 Register
	limit                          VecVirtual // 127
	total                          GPVirtual  // the sum of the block
}

func newQuantizer(name string) *quantizer {
	begin(name, quantizeBlocks)
	k := &quantizer{q: arg("q"), x: arg("x"), blocks: arg("blocks"), total: asm.GP32()}
	k.steps32, k.steps16 = arg("steps32"), arg("steps16")
	k.limit = broadcastX(math.Float32bits(127))
	return k
}

func broadcastX(bits uint32) VecVirtual {
	value, x := asm.GP32(), asm.XMM()
	asm.MOVL(U32(bits), value)
	asm.VMOVD(value, x)
	asm.VPBROADCASTD(x, x)
	return x
}

// factors emits the code that computes two numbers from the largest magnitude of a block. scale is the block's scale:
// the largest magnitude divided by 127. inverse is 127 divided by the largest magnitude; the kernel multiplies values
// by it and then rounds them. Both numbers are 0 if the largest magnitude is below minActivation of package matrix. If
// the largest magnitude is not finite, scale is NaN.
func (k *quantizer) factors(largest Register) (scale, inverse VecVirtual) {
	finite, size := asm.XMM(), asm.GP32()
	scale, inverse = asm.XMM(), asm.XMM()
	asm.VDIVSS(k.limit, largest, scale)
	asm.VSUBSS(largest, largest, finite) // 0 or NaN
	asm.VADDSS(finite, scale, scale)
	asm.VDIVSS(largest, k.limit, inverse)
	asm.VMOVD(largest, size)
	asm.CMPL(size, U32(math.Float32bits(1.0/(1<<100))))
	asm.JGE(LabelRef("large"))
	asm.VPXOR(scale, scale, scale)
	asm.VPXOR(inverse, inverse, inverse)
	asm.Label("large")
	return scale, inverse
}

// half emits the code for half a block of integers. x and other each have 4 partial sums of these integers. The code
// adds the 8 numbers. It stores the scale, the negated sum, and their product in entry i of k.steps16, and adds the
// negated sum to k.total.
func (k *quantizer) half(i int, scale VecVirtual, x, other Register) {
	sum := asm.GP32()
	asm.VPADDD(other, x, x)
	asm.VPSHUFD(Imm(0x4e), x, other)
	asm.VPADDD(other, x, x)
	asm.VPSHUFD(Imm(0xb1), x, other)
	asm.VPADDD(other, x, x)
	asm.VMOVD(x, sum)
	asm.NEGL(sum)
	k.step(Mem{Base: k.steps16, Disp: i * stepBytes}, scale, sum)
	if i == 0 {
		asm.MOVL(sum, k.total)
	} else {
		asm.ADDL(sum, k.total)
	}
}

func (k *quantizer) next(scale VecVirtual) {
	k.step(Mem{Base: k.steps32}, scale, k.total)
	asm.ADDQ(Imm(128), k.x)
	asm.ADDQ(Imm(32), k.q)
	asm.ADDQ(Imm(stepBytes), k.steps32)
	asm.ADDQ(Imm(2*stepBytes), k.steps16)
}

func (k *quantizer) step(dst Mem, scale, sum Register) {
	product := asm.XMM()
	asm.VPXOR(product, product, product)
	asm.VCVTSI2SSL(sum, product, product)
	asm.VMULSS(scale, product, product)
	asm.VMOVSS(scale, dst)
	asm.MOVL(sum, dst.Offset(4))
	asm.VMOVSS(product, dst.Offset(8))
}

// largest4 emits the code that finds the largest of the 4 magnitudes in top and the 4 in other, and leaves it in the
// first lane of top. It compares magnitudes as integers, so that a NaN is the largest.
func largest4(top, other Register) {
	asm.VPMAXUD(other, top, top)
	asm.VPSHUFD(Imm(0x4e), top, other)
	asm.VPMAXUD(other, top, top)
	asm.VPSHUFD(Imm(0xb1), top, other)
	asm.VPMAXUD(other, top, top)
}

func quantize512() {
	k := newQuantizer("quantizeAVX512")
	magnitude, bits := asm.ZMM(), asm.GP32()
	asm.MOVL(U32(0x7fffffff), bits)
	asm.VPBROADCASTD(bits, magnitude)
	loop("block", k.blocks, 1, func() {
		values, top, other, factor := zmms(2), asm.ZMM(), asm.ZMM(), asm.ZMM()
		asm.VMOVUPS(Mem{Base: k.x}, values[0])
		asm.VMOVUPS(Mem{Base: k.x, Disp: 64}, values[1])
		asm.VPANDD(magnitude, values[0], top)
		asm.VPANDD(magnitude, values[1], other)
		asm.VPMAXUD(other, top, top)
		asm.VEXTRACTI32X8(Imm(1), top, other.AsY())
		asm.VPMAXUD(other.AsY(), top.AsY(), top.AsY())
		asm.VEXTRACTI128(Imm(1), top.AsY(), other.AsX())
		largest4(top.AsX(), other.AsX())
		scale, inverse := k.factors(top.AsX())
		asm.VBROADCASTSS(inverse, factor)
		for i, z := range values {
			asm.VMULPS(factor, z, z)
			asm.VCVTPS2DQ(z, z)
			asm.VPMOVSDB(z, Mem{Base: k.q, Disp: i * 16})
			asm.VEXTRACTI32X8(Imm(1), z, other.AsY())
			asm.VPADDD(other.AsY(), z.AsY(), z.AsY())
			asm.VEXTRACTI128(Imm(1), z.AsY(), other.AsX())
			k.half(i, scale, z.AsX(), other.AsX())
		}
		k.next(scale)
	})
	end()
}

func quantize2() {
	k := newQuantizer("quantizeAVX2")
	magnitude := asm.YMM()
	asm.VPCMPEQD(magnitude, magnitude, magnitude)
	asm.VPSRLD(Imm(1), magnitude, magnitude)
	loop("block", k.blocks, 1, func() {
		values, top, other, factor := ymms(4), asm.YMM(), asm.YMM(), asm.YMM()
		asm.VPXOR(top, top, top)
		for i, y := range values {
			asm.VMOVUPS(Mem{Base: k.x, Disp: i * 32}, y)
			asm.VPAND(magnitude, y, other)
			asm.VPMAXUD(other, top, top)
		}
		asm.VEXTRACTI128(Imm(1), top, other.AsX())
		largest4(top.AsX(), other.AsX())
		scale, inverse := k.factors(top.AsX())
		asm.VBROADCASTSS(inverse, factor)
		for _, y := range values {
			asm.VMULPS(factor, y, y)
			asm.VCVTPS2DQ(y, y)
		}
		for i := range 2 {
			a, b, sum := values[2*i], values[2*i+1], asm.YMM()
			asm.VPADDD(b, a, sum)
			asm.VPACKSSDW(b, a, a) // words of both, in lanes of 128 bits
			asm.VPERMQ(Imm(0xd8), a, a)
			asm.VEXTRACTI128(Imm(1), a, other.AsX())
			asm.VPACKSSWB(other.AsX(), a.AsX(), a.AsX())
			asm.VMOVDQU(a.AsX(), Mem{Base: k.q, Disp: i * 16})
			asm.VEXTRACTI128(Imm(1), sum, other.AsX())
			k.half(i, scale, sum.AsX(), other.AsX())
		}
		k.next(scale)
	})
	end()
}

// shorten generates the kernel that rounds a multiple of 16 values to BF16, as the function short of package matrix
// does. The kernel writes f32 or, if paired is true, pairs of BF16 with the first value in the high half. Rounding
// takes 1 % of the time of a prompt, so there is no AVX-512 kernel.
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
