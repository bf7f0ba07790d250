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

// resultParameters are the parameters of kernels with resultSums. The sums start with the values at from, or with 0
// if from is nil. At the end, the kernel adds the values at plus, then those at plus2, unless the pointers are nil,
// and stores the sums at to. Rows at from, plus and plus2 have 64 values. offset is added to all addresses.
const resultParameters = "to *float32, toStride uintptr, from, plus, plus2 *float32, offset uintptr"

// at emits code for each vector of sums. at is the name of an argument with the address of sums in memory. f emits the
// code for one vector; m is its address there. The kernel skips all of this code if the argument is nil.
func (s resultSums) at(at string, f func(m Mem, z VecVirtual)) {
	base, label := arg(at), "without_"+at
	asm.TESTQ(base, base)
	asm.JEQ(LabelRef(label))
	asm.ADDQ(address("offset"), base)
	s.each(func(r, v int, z VecVirtual) { f(Mem{Base: base, Disp: r*panel*4 + v*64}, z) })
	asm.Label(label)
}

func (s resultSums) load() {
	s.zero()
	s.at("from", func(m Mem, z VecVirtual) { asm.VMOVUPS(m, z) })
}

func (s resultSums) store() {
	s.at("plus", func(m Mem, z VecVirtual) { asm.VADDPS(m, z, z) })
	s.at("plus2", func(m Mem, z VecVirtual) { asm.VADDPS(m, z, z) })
	to := arg("to")
	asm.ADDQ(address("offset"), to)
	for r := range s.sums {
		for v, z := range s.sums[r] {
			asm.VMOVUPS(z, Mem{Base: to, Disp: v * 64})
		}
		if r < len(s.sums)-1 {
			asm.ADDQ(address("toStride"), to)
		}
	}
}

// pairs512 generates the kernel that multiplies pairs of BF16. With each pair of inputs, the kernel prefetches 4
// cache lines at ahead and advances ahead by step bytes.
func pairs512(rows int) {
	begin(fmt.Sprintf("pairsAVX512x%d", rows), "func("+resultParameters+", x *float32, xStride uintptr, w *byte, "+
		"ahead, step, k uintptr)")
	s := resultSums{newSums(avx512, rows, panel/16)}
	s.load()
	x, w, ahead, step, k := rowsOf("x", "xStride", rows), arg("w"), arg("ahead"), arg("step"), arg("k")
	loop("step", k, 1, func() {
		ws := zmms(panel / 16)
		for i, z := range ws {
			asm.PREFETCHT1(Mem{Base: ahead, Disp: i * 64})
			asm.VMOVUPS(Mem{Base: w, Disp: i * 64}, z)
		}
		for r := range rows {
			b := asm.ZMM()
			asm.VBROADCASTSS(x.At(r, 0), b)
			for i, z := range s.sums[r] {
				assembly.DotBF16(asm, b, ws[i], z)
			}
		}
		asm.ADDQ(step, ahead)
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
