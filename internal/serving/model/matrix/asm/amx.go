package main

import (
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/serving/assembly"
)

// Kernels of AMX. A tile of activations has up to 16 rows. A tile of weights has 16 outputs. Each of its rows has 4
// bytes for each output: the weights of a quad, or of a pair of BF16. In a panel, these rows are rowStride bytes apart.
// So kernels load the tiles from weights that are packed for other kernels.
const (
	tileRows    = 16
	tileOutputs = 16
	tileColumns = tileOutputs * 4 // bytes
	rowStride   = panel * 4
)

// A dotTiles generates the kernel for 8-bit activations.
type dotTiles struct {
	prefetchAddr, stride  Register
	x, xStride, w, buffer Register
	scales, blocks        Register
	steps                 *assembly.Rows
	sums                  resultSums
}

// dotAMX generates the kernel that multiplies rows of 8-bit activations by weights that are signed bytes. It multiplies
// 16 rows by the weights of 16 outputs at a time, until they have all outputs of the panel, and then continues with the
// next 16 rows. x and steps must have a multiple of 16 rows. The kernel computes all of them, but stores only the first
// rows; the argument rows is their number.
//
// A product of tiles adds the products of a block. The sum of all blocks needs scales, which tiles do not have. The kernel
// therefore stores the sums of a block at buffer. It converts them to floats and multiplies them by the scales as
// dot512 does. Meanwhile the processor multiplies the tiles of the next block, whose sums go to another place. The two
// places are 64 bytes apart; buffer is a multiple of 128.
func dotAMX() {
	begin("dotAMX", "func("+resultParameters+", rows uintptr, config, buffer *byte, x *int8, xStride uintptr, steps *uint64, "+
		"stepsStride uintptr, w *byte, wStride uintptr, scales *byte, scalesStride uintptr, prefetchAddr, prefetchStep uintptr, "+
		"blocks, block, minima uintptr)")
	k := &dotTiles{prefetchAddr: arg("prefetchAddr"), stride: asm.GP64()}
	asm.MOVQ(U32(rowStride), k.stride)
	assembly.LoadTileConfig(asm, arg("config"))
	asm.Label("columns")
	k.columns()
	k.store()
	asm.ADDQ(U32(tileColumns), address("offset"))
	asm.ADDQ(U32(tileColumns), address("w"))
	asm.ADDQ(U32(tileColumns/2), address("scales"))
	asm.CMPQ(address("offset"), U32(rowStride))
	asm.JNE(LabelRef("columns"))
	k.nextRows()
	assembly.ReleaseTiles(asm)
	end()
}

// columns emits the code that computes the sums of 16 rows and 16 outputs.
func (k *dotTiles) columns() {
	k.x, k.xStride, k.w, k.buffer = arg("x"), arg("xStride"), arg("w"), arg("buffer")
	k.scales, k.blocks = arg("scales"), arg("blocks")
	k.steps = rowsOf("steps", "stepsStride", tileRows)
	k.sums = resultSums{newSums(avx512, tileRows, 1)}
	k.sums.load()
	k.multiply()
	asm.Label("block")
	asm.SUBQ(Imm(1), k.blocks)
	asm.JEQ(LabelRef("add"))
	asm.XORQ(Imm(tileColumns), k.buffer)
	k.multiply()
	asm.XORQ(Imm(tileColumns), k.buffer)
	asm.Label("add")
	k.add()
	asm.XORQ(Imm(tileColumns), k.buffer)
	asm.TESTQ(k.blocks, k.blocks)
	asm.JNE(LabelRef("block"))
}

// multiply emits the code that computes the products of a block and advances to the next block.
func (k *dotTiles) multiply() {
	const sums, a, b = assembly.Tile(0), assembly.Tile(1), assembly.Tile(2)
	assembly.LoadTile(asm, Mem{Base: k.w}, k.stride, b)
	assembly.LoadTile(asm, Mem{Base: k.x}, k.xStride, a)
	assembly.ZeroTile(asm, sums)
	assembly.MultiplyTilesInt8(asm, b, a, sums)
	assembly.StoreTile(asm, sums, Mem{Base: k.buffer}, k.stride)
	asm.ADDQ(address("block"), k.x)
	asm.ADDQ(address("wStride"), k.w)
}

// add emits the code that adds the sums of the block at buffer to the sums of all blocks.
func (k *dotTiles) add() {
	scales := asm.ZMM()
	asm.VCVTPH2PS(Mem{Base: k.scales}, scales)
	for r := range tileRows {
		if r%4 == 0 {
			asm.PREFETCHT0(Mem{Base: k.prefetchAddr})
			asm.ADDQ(address("prefetchStep"), k.prefetchAddr)
		}
		sum := asm.ZMM()
		asm.VCVTDQ2PS(Mem{Base: k.buffer, Disp: r * rowStride}, sum)
		asm.VMULPS(scales, sum, sum)
		asm.VFMADD231PS_BCST(k.steps.At(r, 0), sum, k.sums.sums[r][0])
	}
	asm.CMPQ(address("minima"), Imm(0))
	asm.JEQ(LabelRef("next"))
	asm.VCVTPH2PS(Mem{Base: k.scales, Disp: panel * 2}, scales)
	for r := range tileRows {
		asm.VFNMADD231PS_BCST(k.steps.At(r, 8), scales, k.sums.sums[r][0])
	}
	asm.Label("next")
	k.steps.Advance(asm, Imm(stepBytes))
	asm.ADDQ(address("scalesStride"), k.scales)
}

// store emits the code that stores the sums of those of the 16 rows that the result has.
func (k *dotTiles) store() {
	for _, addend := range []string{"addend1", "addend2"} {
		k.sums.eachInMemory(addend, func(m Mem, z VecVirtual) { asm.VADDPS(m, z, z) })
	}
	dst, rows := arg("dst"), arg("rows")
	asm.ADDQ(address("offset"), dst)
	for r := range tileRows {
		asm.VMOVUPS(k.sums.sums[r][0], Mem{Base: dst})
		asm.SUBQ(Imm(1), rows)
		asm.JEQ(LabelRef("stored"))
		asm.ADDQ(address("dstStride"), dst)
	}
	asm.Label("stored")
}

// nextRows emits the code that continues with the next 16 rows, if there are any.
func (k *dotTiles) nextRows() {
	asm.SUBQ(Imm(tileRows), address("rows"))
	asm.JLE(LabelRef("end"))
	asm.SUBQ(U32(rowStride), address("offset"))
	asm.SUBQ(U32(rowStride), address("w"))
	asm.SUBQ(U32(rowStride/2), address("scales"))
	for _, rows := range [][2]string{{"dst", "dstStride"}, {"x", "xStride"}, {"steps", "stepsStride"}} {
		distance := arg(rows[1])
		asm.SHLQ(Imm(4), distance)
		asm.ADDQ(distance, address(rows[0]))
	}
	for _, sums := range []string{"initial", "addend1", "addend2"} {
		asm.CMPQ(address(sums), Imm(0))
		asm.JEQ(LabelRef("no_" + sums))
		asm.ADDQ(U32(tileRows*rowStride), address(sums))
		asm.Label("no_" + sums)
	}
	asm.JMP(LabelRef("columns"))
	asm.Label("end")
}

// signed generates the kernel that subtracts an offset from bytes. It reads blocks of n bytes, a multiple of 64, whose
// beginnings are stride bytes apart, and writes them without gaps.
func signed() {
	begin("signedAVX2", "func(dst, src *byte, stride, blocks, n, offset uintptr)")
	dst, src, blocks, n, at := arg("dst"), arg("src"), arg("blocks"), asm.GP64(), asm.GP64()
	low, offset := asm.XMM(), asm.YMM()
	asm.VMOVQ(address("offset"), low)
	asm.VPBROADCASTB(low, offset)
	loop("block", blocks, 1, func() {
		asm.Load(asm.Param("n"), n)
		asm.MOVQ(src, at)
		loop("bytes", n, 64, func() {
			for i, v := range ymms(2) {
				asm.VMOVUPS(Mem{Base: at, Disp: i * 32}, v)
				asm.VPSUBB(offset, v, v)
				asm.VMOVUPS(v, Mem{Base: dst, Disp: i * 32})
			}
			asm.ADDQ(Imm(64), at)
			asm.ADDQ(Imm(64), dst)
		})
		asm.ADDQ(address("stride"), src)
	})
	end()
}
