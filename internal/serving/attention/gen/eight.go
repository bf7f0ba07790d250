package main

import (
	"slices"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// An eightBits emits AVX-512 instructions that read numbers of type E4M3 or E5M2 and convert them to float16, then to
// float32. For E4M3 it also keeps the largest magnitudes of the numbers read, to find NaN: each byte of register nan
// has the largest magnitude of the numbers at the same position. If a byte is 0x7f, one of these numbers was NaN.
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

// load emits the code that reads 32 numbers at m and writes them to registers i and j as float32. If mask is not nil,
// it has a bit for each number, and numbers whose bit is 0 become 0. Numbers of E4M3 are multiplied by 2^-8.
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

// check emits the code that reads the next 64 numbers at m and updates register nan: each byte becomes the larger of
// its old value and the magnitude of the number at its position. If mask is not nil, the code reads only the next 32
// numbers, and of these only the numbers whose bit in mask is set. The code overwrites register spare. For E5M2, check
// emits nothing.
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

// end emits the code that sets flag to 1 if a number of E4M3 was NaN, and to 0 otherwise. For other types it emits
// nothing.
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
