// Command asm writes the assembly of package matrix:
//
//	go run ./internal/serving/model/matrix/asm -o internal/serving/model/matrix
//
// Kernels for activations in F32 or BF16 add the products of an output in the order of the inputs, with one fused
// multiply-add for each product. The bits of a result therefore do not depend on the kernel. In kernels for pairs of
// BF16, one instruction does two of these multiply-adds. It first adds the product of the high halves, which have the
// first input of the pair.
//
// Kernels for 8-bit activations compute the exact sum of each block, and add these sums in the order of the blocks.
//
// Kernels of AMX multiply tiles. For BF16, their order is that of TDPBF16PS, which differs from the order of all other
// kernels.
package main

import (
	"github.com/mmcloughlin/avo/build"

	"llmmemory/internal/serving/assembly"
)

func main() { assembly.Main(generate) }

var asm *build.Context

func generate() (map[string][]byte, error) {
	asm = build.NewContext()
	asm.ConstraintExpr("amd64,!purego")
	kernels()
	const command = "llmmemory/internal/serving/model/matrix/asm"
	text, declarations, err := assembly.Compile(asm, command, "matrix")
	if err != nil {
		return nil, err
	}
	stubs, err := assembly.GoFile(command, "//go:build amd64 && !purego\n\npackage matrix", declarations)
	return map[string][]byte{"kernels_amd64.s": text, "kernels_amd64.go": stubs}, err
}

func kernels() {
	for rows := 1; rows <= 4; rows++ {
		for _, kind := range []string{f32, f16, bf16} {
			half512(rows, kind)
		}
		for _, kind := range blockKinds {
			blocks512(rows, kind)
		}
	}
	for rows := 8; rows <= 24; rows += 4 {
		for _, kind := range []string{f32, f16, bf16} {
			wideHalf512(rows, kind)
		}
		if rows > 20 {
			continue // decoding blocks first takes about as long
		}
		for _, kind := range blockKinds {
			wideBlocks512(rows, kind)
		}
	}
	for rows := 1; rows <= 6; rows++ {
		pairs512(rows)
		if rows > 1 { // dotRow is for one
			dot512(rows)
		}
	}
	for rows := 1; rows <= 4; rows++ {
		dotInt8x2(rows)
		dotInt4x2(rows)
	}
	dotRow(nil)
	for _, p := range packings {
		unpack(avx512, p)
		unpack(avx2, p)
		dotRow(&p)
	}
	dotAMX()
	signed()
	pairsAMX(1)
	pairsAMX(2)
	quantize512()
	quantize2()
	shorten("roundAVX2", false)
	shorten("roundPairsAVX2", true)
	gather4()
	addSums()
	decodeHalf(avx512, f16)
	decodeHalf(avx512, bf16)
	for _, kind := range blockKinds {
		decodeBlocks(avx512, kind)
		decodeBlocks(avx2, kind)
	}
	for rows := 1; rows <= 6; rows++ {
		tile2(rows)
	}
	half2(f16)
	half2(bf16)
	decodeHalf(avx2, f16)
	decodeHalf(avx2, bf16)
	siluMul512()
	recurrences()
	exp512()
	largest512()
}
