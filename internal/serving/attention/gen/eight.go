package main

import (
	"slices"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// An eightBits emits AVX-512 instructions that read numbers of type E4M3 or E5M2 and convert them to float16, then to
// float32. Register nan serves to find NaN in E4M3. Each of its bytes has the largest magnitude so far of the numbers
// at this position. If a byte is 0x7f, one of these numbers was NaN.
type eightBits struct {
	*gen
	e4m3                 bool
	mask, nan, magnitude int
}

// eightBits returns a reader for type d, and loads its constants into registers. It returns nil if d is neither E4M3
// nor E5M2.
func (g *gen) eightBits(d dtype) *eightBits {
	if !slices.Contains(eightBitTypes, d) {
		return nil
	}
	last := len(g.regs) - 1
	k := &eightBits{g, d.name == "E4M3", last, last - 1, last - 2}
	if k.e4m3 {
		g.asm.VPBROADCASTD(g.constant("e4m3", 0xbfffbfff), g.regs[k.mask])
		g.asm.VPBROADCASTD(g.constant("magnitude", 0x7f7f7f7f), g.regs[k.magnitude])
		g.zero(k.nan)
	}
	return k
}

// load emits the code that reads 32 numbers into registers i and j as float32. mask can have a bit for each number:
// numbers with bit 0 become 0. If mask is nil, all numbers are kept. Numbers of E4M3 are multiplied by 2^-8.
func (k *eightBits) load(m operand.Mem, i, j int, mask reg.Register) {
	asm, words := k.asm, k.regs[j]
	extend, masked := asm.VPMOVZXBW, asm.VPMOVZXBW_Z
	if k.e4m3 {
		extend, masked = asm.VPMOVSXBW, asm.VPMOVSXBW_Z
	}
	if mask == nil {
		extend(m, words)
	} else {
		masked(m, mask, words)
	}
	if k.e4m3 {
		asm.VPSLLW(operand.U8(7), words, words)
		asm.VPANDD(k.regs[k.mask], words, words)
	} else {
		asm.VPSLLW(operand.U8(8), words, words)
	}
	asm.VCVTPH2PS(k.half[j], k.regs[i])
	asm.VEXTRACTI64X4(operand.U8(1), words, k.half[j])
	asm.VCVTPH2PS(k.half[j], words)
}

// check updates register nan with the next 64 numbers of E4M3. If mask is not nil, it updates register nan only with
// those of the next 32 numbers whose bit in mask is set.
func (k *eightBits) check(m operand.Mem, spare int, mask reg.Register) {
	switch {
	case !k.e4m3:
		return
	case mask == nil:
		k.asm.VPANDD(m, k.regs[k.magnitude], k.regs[spare])
	default:
		k.asm.VMOVDQU8_Z(m, mask, k.half[spare])
		k.asm.VPANDD(k.regs[k.magnitude], k.regs[spare], k.regs[spare])
	}
	k.asm.VPMAXUB(k.regs[spare], k.regs[k.nan], k.regs[k.nan])
}

// end sets flag if there was a NaN of E4M3.
func (k *eightBits) end() {
	if k == nil || !k.e4m3 {
		return
	}
	bits, hit := k.asm.GP64(), k.asm.GP64()
	k.asm.VPCMPEQB(k.regs[k.magnitude], k.regs[k.nan], reg.K1)
	k.asm.KMOVQ(reg.K1, bits)
	k.asm.XORL(hit.As32(), hit.As32())
	k.asm.TESTQ(bits, bits)
	k.asm.SETNE(hit.As8L())
	k.asm.MOVQ(hit, k.argMem(atFlag))
}
