package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/serving/assembly"
)

// A pairTiles generates a kernel for pairs of BF16. The sums of rowTiles × 16 rows and columnTiles × 16 outputs stay in
// tiles from the first to the last input.
type pairTiles struct {
	rowTiles, columnTiles int
	stride                Register
}

// pairsAMX generates the kernel that multiplies rows of pairs of BF16 by a panel, and stores the sums at dst. The sums
// start with those at initial, whose rows have 64 values, or with 0 if initial is nil. The argument tiles is the number
// of tiles into which the inputs are divided. config has the sizes of the tiles: the number of rows, and the number of
// inputs of a tile. For each tile of inputs, the kernel prefetches 8 cache lines at prefetchAddr and adds prefetchStep to
// prefetchAddr.
//
// The kernel for up to 32 rows computes 32 outputs and then the other 32, so that a tile that is loaded is multiplied
// twice.
func pairsAMX(rowTiles int) {
	k := &pairTiles{rowTiles: rowTiles, columnTiles: 4 / rowTiles, stride: asm.GP64()}
	begin(fmt.Sprintf("pairsAMXx%d", rowTiles*tileRows), "func(config *byte, dst *float32, dstStride uintptr, initial *float32, "+
		"x *float32, xStride uintptr, w *byte, prefetchAddr, prefetchStep, tiles uintptr)")
	assembly.LoadTileConfig(asm, arg("config"))
	asm.MOVQ(U32(rowStride), k.stride)
	prefetchAddr, prefetchStep, columns := arg("prefetchAddr"), arg("prefetchStep"), asm.GP64()
	asm.XORQ(columns, columns)
	asm.Label("columns")
	k.start(columns)
	x, xStride, w, tiles := k.rows("x", arg("xStride")), arg("xStride"), arg("w"), arg("tiles")
	asm.ADDQ(columns, w)
	loop("tile", tiles, 1, func() {
		for line := range 8 {
			asm.PREFETCHT1(Mem{Base: prefetchAddr, Disp: line * 64})
		}
		k.multiply(x, xStride, w)
		asm.ADDQ(prefetchStep, prefetchAddr)
		for _, address := range x {
			asm.ADDQ(Imm(64), address)
		}
		asm.ADDQ(U32(tileRows*rowStride), w)
	})
	dstStride := arg("dstStride")
	k.each(k.rows("dst", dstStride), columns, func(m Mem, t assembly.Tile) { assembly.StoreTile(asm, t, m, dstStride) })
	asm.ADDQ(U32(uint32(k.columnTiles*tileColumns)), columns)
	asm.CMPQ(columns, U32(rowStride))
	asm.JNE(LabelRef("columns"))
	assembly.ReleaseTiles(asm)
	asm.RET()
}

// start emits the code that sets the sums to those at initial, or to 0.
func (k *pairTiles) start(columns Register) {
	initial := arg("initial")
	asm.TESTQ(initial, initial)
	asm.JEQ(LabelRef("zero"))
	k.each(k.rows("initial", k.stride), columns, func(m Mem, t assembly.Tile) { assembly.LoadTile(asm, m, k.stride, t) })
	asm.JMP(LabelRef("multiply"))
	asm.Label("zero")
	for t := range k.rowTiles * k.columnTiles {
		assembly.ZeroTile(asm, assembly.Tile(t))
	}
	asm.Label("multiply")
}

// rows emits the code that loads the argument with the given name, and returns the addresses of row 0 and, if the kernel
// has more than 16 rows, of row 16.
func (k *pairTiles) rows(name string, stride Register) []Register {
	all := []Register{arg(name)}
	if k.rowTiles == 2 {
		next := asm.GP64()
		asm.MOVQ(stride, next)
		asm.SHLQ(Imm(4), next)
		asm.ADDQ(all[0], next)
		all = append(all, next)
	}
	return all
}

// each calls f for each tile of sums. m is the address of the tile's first sum. columns is the number of bytes before
// the kernel's current outputs.
func (k *pairTiles) each(rows []Register, columns Register, f func(m Mem, t assembly.Tile)) {
	for row, address := range rows {
		asm.ADDQ(columns, address)
		for column := range k.columnTiles {
			f(Mem{Base: address, Disp: column * tileColumns}, k.sum(row, column))
		}
	}
}

func (k *pairTiles) sum(row, column int) assembly.Tile {
	return assembly.Tile(row*k.columnTiles + column)
}

// a returns the tile for activations of a tile of rows. The next tiles are for weights.
func (k *pairTiles) a(row int) assembly.Tile { return assembly.Tile(4 + row) }

// b returns the tile for weights of a tile of outputs.
func (k *pairTiles) b(column int) assembly.Tile {
	first := 4 + k.rowTiles
	return assembly.Tile(first + column%(8-first))
}

// multiply emits the code that multiplies a tile of inputs of each row by the weights of all outputs.
func (k *pairTiles) multiply(x []Register, xStride, w Register) {
	for column := range k.columnTiles {
		assembly.LoadTile(asm, Mem{Base: w, Disp: column * tileColumns}, k.stride, k.b(column))
		for row := range k.rowTiles {
			if column == 0 {
				assembly.LoadTile(asm, Mem{Base: x[row]}, xStride, k.a(row))
			}
			assembly.MultiplyTilesBF16(asm, k.b(column), k.a(row), k.sum(row, column))
		}
	}
}
