package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/serving/assembly"
)

// dot512 generates the kernel for several rows. It computes one half of the outputs and then the other. For 32
// outputs of all rows it keeps two kinds of sums in registers: those of the present block, and those of all blocks.
// Loading and storing the sums of all blocks for each block would take a third of the time.
func dot512(rows int) {
	begin(fmt.Sprintf("dotAVX512x%d", rows), "func("+sumsOf+", x *int8, xStride uintptr, steps *uint64, "+
		"stepsStride uintptr, w *byte, wStride uintptr, scales *byte, scalesStride uintptr, ahead, aheadStep uintptr, "+
		"blocks, quads, shift, minima uintptr)")
	const vectors = panel / 16 / 2
	x, steps := rowsOf("x", "xStride", rows), rowsOf("steps", "stepsStride", rows)
	w, scales, ahead, blocks, n := asm.GP64(), asm.GP64(), arg("ahead"), asm.GP64(), asm.GP64()
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
		loop("quad", n, together, func() {
			for quad := range together {
				asm.PREFETCHT0(Mem{Base: ahead})
				asm.ADDQ(address("aheadStep"), ahead)
				ws := zmms(vectors)
				for v, z := range ws {
					asm.VMOVDQU32(Mem{Base: w, Disp: quad*quads + v*64}, z)
				}
				for r := range rows {
					b := asm.ZMM()
					asm.VPBROADCASTD(x.At(r, quad*4), b)
					for v, acc := range d.acc[r] {
						asm.VPDPBUSD(b, ws[v], acc)
					}
				}
			}
			asm.ADDQ(U32(together*quads), w)
			asm.ADDQ(Imm(together*4), x.Base)
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

// together is the number of quads, groups of 4 inputs, that dot512 multiplies in one iteration. The smallest block
// has 4 quads.
const together = 4

// A blockSums holds the sums of a block in acc, and the sums of all blocks in placed. The comment of dot describes
// them.
type blockSums struct {
	placed
	steps *assembly.Rows
	shift Register
	acc   sums
}

func newBlockSums(steps *assembly.Rows, rows, vectors int) *blockSums {
	s := &blockSums{placed: placed{newSums(avx512, rows, vectors)}, steps: steps, shift: asm.XMM()}
	asm.VMOVQ(address("shift"), s.shift)
	s.acc = newSums(avx512, rows, vectors)
	return s
}

// begin sets the sums of a block to 0. It could set them to the correction for shift, which add adds, but that is
// slower.
func (s *blockSums) begin() { s.acc.zero() }

// add adds the sums of a block to the sums of all blocks. compare must set the zero flag if there are no minima.
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
