package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

const quantizeBlocks = "func(q *int8, steps32 *uint64, steps16 *uint64, x *float32, blocks uintptr)"

// A quantizer rounds blocks of 32 activations to 8 bits, with the operations of quantizeBlock. Sums of
// its two halves are kept beside those of the block.
type quantizer struct {
	q, x, blocks, steps32, steps16 Register
	most                           VecVirtual // 127
	total                          GPVirtual  // the sum of the block
}

func newQuantizer(name string) *quantizer {
	TEXT(name, NOSPLIT, quantizeBlocks)
	Doc(name + " rounds blocks of 32 activations to 8 bits.")
	Pragma("noescape")
	k := &quantizer{q: Load(Param("q"), GP64()), x: Load(Param("x"), GP64()), blocks: Load(Param("blocks"), GP64()), total: GP32()}
	k.steps32, k.steps16 = Load(Param("steps32"), GP64()), Load(Param("steps16"), GP64())
	k.most = broadcastX(math.Float32bits(127))
	return k
}

func broadcastX(bits uint32) VecVirtual {
	value, x := GP32(), XMM()
	MOVL(U32(bits), value)
	VMOVD(value, x)
	VPBROADCASTD(x, x)
	return x
}

// factors makes the scale of a block, and what its values are multiplied by, from its largest magnitude.
func (k *quantizer) factors(largest Register) (scale, inverse VecVirtual) {
	finite, size := XMM(), GP32()
	scale, inverse = XMM(), XMM()
	VDIVSS(k.most, largest, scale)
	VSUBSS(largest, largest, finite) // 0, or not a number
	VADDSS(finite, scale, scale)
	VDIVSS(largest, k.most, inverse)
	VMOVD(largest, size)
	CMPL(size, U32(math.Float32bits(1.0/(1<<100))))
	JGE(LabelRef("large"))
	VPXOR(scale, scale, scale)
	VPXOR(inverse, inverse, inverse)
	Label("large")
	return scale, inverse
}

// half keeps the sum of 16 values, which are 4 in x.
func (k *quantizer) half(i int, scale VecVirtual, x, other Register) {
	sum := GP32()
	VPADDD(other, x, x)
	VPSHUFD(Imm(0x4e), x, other)
	VPADDD(other, x, x)
	VPSHUFD(Imm(0xb1), x, other)
	VPADDD(other, x, x)
	VMOVD(x, sum)
	NEGL(sum)
	VMOVSS(scale, Mem{Base: k.steps16, Disp: i * 8})
	MOVL(sum, Mem{Base: k.steps16, Disp: i*8 + 4})
	if i == 0 {
		MOVL(sum, k.total)
	} else {
		ADDL(sum, k.total)
	}
}

func (k *quantizer) next(scale VecVirtual) {
	VMOVSS(scale, Mem{Base: k.steps32})
	MOVL(k.total, Mem{Base: k.steps32, Disp: 4})
	ADDQ(Imm(128), k.x)
	ADDQ(Imm(32), k.q)
	ADDQ(Imm(8), k.steps32)
	ADDQ(Imm(16), k.steps16)
}

// largest4 leaves the largest of 4 magnitudes, and those of other, in the first lane of top. They are compared as
// integers, of which a NaN is the largest.
func largest4(top, other Register) {
	VPMAXUD(other, top, top)
	VPSHUFD(Imm(0x4e), top, other)
	VPMAXUD(other, top, top)
	VPSHUFD(Imm(0xb1), top, other)
	VPMAXUD(other, top, top)
}

func quantize512() {
	k := newQuantizer("quantizeAVX512")
	magnitude, bits := ZMM(), GP32()
	MOVL(U32(0x7fffffff), bits)
	VPBROADCASTD(bits, magnitude)
	loop("block", k.blocks, 1, func() {
		in, top, other, factor := zmms(2), ZMM(), ZMM(), ZMM()
		VMOVUPS(Mem{Base: k.x}, in[0])
		VMOVUPS(Mem{Base: k.x, Disp: 64}, in[1])
		VPANDD(magnitude, in[0], top)
		VPANDD(magnitude, in[1], other)
		VPMAXUD(other, top, top)
		VEXTRACTI32X8(Imm(1), top, other.AsY())
		VPMAXUD(other.AsY(), top.AsY(), top.AsY())
		VEXTRACTI128(Imm(1), top.AsY(), other.AsX())
		largest4(top.AsX(), other.AsX())
		scale, inverse := k.factors(top.AsX())
		VBROADCASTSS(inverse, factor)
		for i, z := range in {
			VMULPS(factor, z, z)
			VCVTPS2DQ(z, z)
			VPMOVSDB(z, Mem{Base: k.q, Disp: i * 16})
			VEXTRACTI32X8(Imm(1), z, other.AsY())
			VPADDD(other.AsY(), z.AsY(), z.AsY())
			VEXTRACTI128(Imm(1), z.AsY(), other.AsX())
			k.half(i, scale, z.AsX(), other.AsX())
		}
		k.next(scale)
	})
	VZEROUPPER()
	RET()
}

func quantize2() {
	k := newQuantizer("quantizeAVX2")
	magnitude := YMM()
	VPCMPEQD(magnitude, magnitude, magnitude)
	VPSRLD(Imm(1), magnitude, magnitude)
	loop("block", k.blocks, 1, func() {
		in, top, other, factor := ymms(4), YMM(), YMM(), YMM()
		VPXOR(top, top, top)
		for i, y := range in {
			VMOVUPS(Mem{Base: k.x, Disp: i * 32}, y)
			VPAND(magnitude, y, other)
			VPMAXUD(other, top, top)
		}
		VEXTRACTI128(Imm(1), top, other.AsX())
		largest4(top.AsX(), other.AsX())
		scale, inverse := k.factors(top.AsX())
		VBROADCASTSS(inverse, factor)
		for _, y := range in {
			VMULPS(factor, y, y)
			VCVTPS2DQ(y, y)
		}
		for i := range 2 {
			a, b, sum := in[2*i], in[2*i+1], YMM()
			VPADDD(b, a, sum)
			VPACKSSDW(b, a, a) // words of both, in lanes of 128 bits
			VPERMQ(Imm(0xd8), a, a)
			VEXTRACTI128(Imm(1), a, other.AsX())
			VPACKSSWB(other.AsX(), a.AsX(), a.AsX())
			VMOVDQU(a.AsX(), Mem{Base: k.q, Disp: i * 16})
			VEXTRACTI128(Imm(1), sum, other.AsX())
			k.half(i, scale, sum.AsX(), other.AsX())
		}
		k.next(scale)
	})
	VZEROUPPER()
	RET()
}
