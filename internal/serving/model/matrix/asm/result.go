package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/serving/assembly"
)

// A resultSums has the sums of a kernel, a register for each row and vector of outputs. The kernel keeps them in
// registers from the first to the last input. The methods emit the code to set the registers at the beginning, and to
// store them in the result at the end.
type resultSums struct{ sums }

// resultParameters are the parameters of kernels with resultSums. The kernel adds offset to the addresses dst, initial,
// addend1 and addend2. The sums start with the values at initial, or with 0 if initial is nil. At the end, the kernel
// adds the values at addend1 and then those at addend2, unless the address is nil, and stores the sums at dst. Rows at
// initial, addend1 and addend2 have 64 values.
const resultParameters = "dst *float32, dstStride uintptr, initial, addend1, addend2 *float32, offset uintptr"

// eachInMemory calls f for each register z of sums. f emits the code for z and m. m is the place in memory of the
// values for the same row and outputs. The values begin at the kernel's argument with the given name, such as initial,
// plus its argument offset. If the named argument is nil, the kernel skips the code.
func (s resultSums) eachInMemory(argument string, f func(m Mem, z VecVirtual)) {
	base, label := arg(argument), "without_"+argument
	asm.TESTQ(base, base)
	asm.JEQ(LabelRef(label))
	asm.ADDQ(address("offset"), base)
	s.each(func(r, v int, z VecVirtual) { f(Mem{Base: base, Disp: r*panel*4 + v*64}, z) })
	asm.Label(label)
}

func (s resultSums) load() {
	s.zero()
	s.eachInMemory("initial", func(m Mem, z VecVirtual) { asm.VMOVUPS(m, z) })
}

func (s resultSums) store() {
	s.eachInMemory("addend1", func(m Mem, z VecVirtual) { asm.VADDPS(m, z, z) })
	s.eachInMemory("addend2", func(m Mem, z VecVirtual) { asm.VADDPS(m, z, z) })
	dst := arg("dst")
	asm.ADDQ(address("offset"), dst)
	for r := range s.sums {
		for v, z := range s.sums[r] {
			asm.VMOVUPS(z, Mem{Base: dst, Disp: v * 64})
		}
		if r < len(s.sums)-1 {
			asm.ADDQ(address("dstStride"), dst)
		}
	}
}

// pairs512 generates the kernel that multiplies pairs of BF16. With each pair of inputs, the kernel prefetches 4
// cache lines at prefetchAddr and adds prefetchStep to prefetchAddr.
func pairs512(rows int) {
	begin(fmt.Sprintf("pairsAVX512x%d", rows), "func("+resultParameters+", x *float32, xStride uintptr, w *byte, "+
		"prefetchAddr, prefetchStep, k uintptr)")
	s := resultSums{newSums(avx512, rows, panel/16)}
	s.load()
	x, w, prefetchAddr, prefetchStep, k := rowsOf("x", "xStride", rows), arg("w"), arg("prefetchAddr"), arg("prefetchStep"), arg("k")
	loop("step", k, 1, func() {
		ws := zmms(panel / 16)
		for i, z := range ws {
			asm.PREFETCHT1(Mem{Base: prefetchAddr, Disp: i * 64})
			asm.VMOVUPS(Mem{Base: w, Disp: i * 64}, z)
		}
		for r := range rows {
			b := asm.ZMM()
			asm.VBROADCASTSS(x.At(r, 0), b)
			for i, z := range s.sums[r] {
				assembly.DotBF16(asm, b, ws[i], z)
			}
		}
		asm.ADDQ(prefetchStep, prefetchAddr)
		asm.ADDQ(Imm(4), x.Base)
		asm.ADDQ(U32(panel*4), w)
	})
	s.store()
	end()
}

// addSums generates the kernel that adds n values at x to those at sums. n is a multiple of 16. Go code takes 8
// times as long.
func addSums() {
	begin("addAVX2", "func(sums, x *float32, n uintptr)")
	sums, x, n := arg("sums"), arg("x"), arg("n")
	loop("step", n, 16, func() {
		for i, y := range ymms(2) {
			asm.VMOVUPS(Mem{Base: x, Disp: i * 32}, y)
			asm.VADDPS(Mem{Base: sums, Disp: i * 32}, y, y)
			asm.VMOVUPS(y, Mem{Base: sums, Disp: i * 32})
		}
		asm.ADDQ(U32(64), x)
		asm.ADDQ(U32(64), sums)
	})
	end()
}
