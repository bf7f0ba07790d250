package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/serving/assembly"
)

// dot512 generates the AVX-512 kernel for several rows. It computes one half of the panel's outputs and then the other
// half. The registers then suffice for two sums of each row and output: the sum of the current block and the sum of all
// blocks so far. If the sums of all blocks were in memory, loading and storing them for each block would take a third
// of the time.
func dot512(rows int) {
	begin(fmt.Sprintf("dotAVX512x%d", rows), "func("+resultParameters+", x *int8, xStride uintptr, steps *uint64, "+
		"stepsStride uintptr, w *byte, wStride uintptr, scales *byte, scalesStride uintptr, prefetchAddr, prefetchStep uintptr, "+
		"blocks, quads, shift, minima uintptr)")
	const vectors = panel / 16 / 2
	x, steps := rowsOf("x", "xStride", rows), rowsOf("steps", "stepsStride", rows)
	w, scales, prefetchAddr, blocks, n := asm.GP64(), asm.GP64(), arg("prefetchAddr"), asm.GP64(), asm.GP64()
	d := newBlockSums(steps, rows, vectors)
	asm.Label("half")
	asm.Load(asm.Param("x"), x.Base)
	asm.Load(asm.Param("steps"), steps.Base)
	asm.Load(asm.Param("w"), w)
	asm.Load(asm.Param("scales"), scales)
	asm.Load(asm.Param("blocks"), blocks)
	d.load()
	loop("block", blocks, 1, func() {
		d.begin()
		asm.Load(asm.Param("quads"), n)
		loop("quad", n, quadsPerStep, func() {
			for quad := range quadsPerStep {
				asm.PREFETCHT0(Mem{Base: prefetchAddr})
				asm.ADDQ(address("prefetchStep"), prefetchAddr)
				ws := zmms(vectors)
				for v, z := range ws {
					asm.VMOVDQU32(Mem{Base: w, Disp: quad*quadBytes + v*64}, z)
				}
				for r := range rows {
					b := asm.ZMM()
					asm.VPBROADCASTD(x.At(r, quad*4), b)
					for v, acc := range d.acc[r] {
						asm.VPDPBUSD(b, ws[v], acc)
					}
				}
			}
			asm.ADDQ(U32(quadsPerStep*quadBytes), w)
			asm.ADDQ(Imm(quadsPerStep*4), x.Base)
		})
		d.add(Mem{Base: scales}, func() { asm.CMPQ(address("minima"), Imm(0)) })
		asm.ADDQ(Imm(stepBytes), steps.Base)
		asm.ADDQ(address("wStride"), w)
		asm.ADDQ(address("scalesStride"), scales)
	})
	d.store()
	asm.ADDQ(U32(vectors*64), address("offset"))
	asm.ADDQ(U32(vectors*64), address("w"))
	asm.ADDQ(U32(vectors*32), address("scales"))
	asm.CMPQ(address("offset"), U32(panel*4))
	asm.JNE(LabelRef("half"))
	end()
}

// quadsPerStep is the number of quads, groups of 4 inputs, that an iteration of dot512 multiplies. The smallest
// block has 4 quads.
const quadsPerStep = 4

// A blockSums has two sums for each row and output: acc for the current block, resultSums for all blocks. The comment
// of dot describes their computation.
type blockSums struct {
	resultSums
	steps *assembly.Rows
	shift Register
	acc   sums
}

func newBlockSums(steps *assembly.Rows, rows, vectors int) *blockSums {
	s := &blockSums{resultSums: resultSums{newSums(avx512, rows, vectors)}, steps: steps, shift: asm.XMM()}
	asm.VMOVQ(address("shift"), s.shift)
	s.acc = newSums(avx512, rows, vectors)
	return s
}

// begin emits the code that sets the sums of a block to 0. The correction for the offset of the weights is added later,
// by add. Starting with the correction instead of 0 would be slower.
func (s *blockSums) begin() { s.acc.zero() }

// add emits the code that adds the sums of a block to the sums of all blocks. compare must emit an instruction that
// sets the processor's zero flag if the weights have no minima.
func (s *blockSums) add(scales Mem, compare func()) {
	compare()
	asm.JNE(LabelRef("multiply"))
	for r := range s.acc {
		b := asm.ZMM()
		asm.VPBROADCASTD(s.steps.At(r, 4), b)
		asm.VPSLLD(s.shift, b, b)
		for _, acc := range s.acc[r] {
			asm.VPADDD(b, acc, acc)
		}
	}
	asm.Label("multiply")
	zs := zmms(len(s.acc[0]))
	for v, z := range zs {
		asm.VCVTPH2PS(scales.Offset(v*32), z)
	}
	for r := range s.acc {
		b := asm.ZMM()
		asm.VBROADCASTSS(s.steps.At(r, 0), b)
		for v, acc := range s.acc[r] {
			asm.VCVTDQ2PS(acc, acc)
			asm.VMULPS(zs[v], acc, acc)
			asm.VFMADD231PS(b, acc, s.sums[r][v])
		}
	}
	compare()
	asm.JEQ(LabelRef("next"))
	for v, z := range zs {
		asm.VCVTPH2PS(scales.Offset(panel*2+v*32), z)
	}
	for r := range s.acc {
		b := asm.ZMM()
		asm.VBROADCASTSS(s.steps.At(r, 8), b)
		for v, total := range s.sums[r] {
			asm.VFNMADD231PS(zs[v], b, total)
		}
	}
	asm.Label("next")
}
