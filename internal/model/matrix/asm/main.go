// Command asm writes the assembly of package matrix:
//
//	go run ./internal/model/matrix/asm -out internal/model/matrix/kernels_amd64.s -stubs internal/model/matrix/kernels_amd64.go -pkg matrix
//
// Every kernel adds the products of one output in the order of k, with one
// fused multiply-add each, so that all of them give the same bits. Kernels for
// 8-bit activations do so with the exact sums of blocks.
package main

import . "github.com/mmcloughlin/avo/build"

func main() {
	ConstraintExpr("amd64,!purego")
	for rows := 1; rows <= 4; rows++ {
		half512(rows, f32)
		half512(rows, f16)
		half512(rows, bf16)
		int8x512(rows)
		int4x512(rows)
	}
	for rows := 8; rows <= 24; rows += 4 {
		wideHalf512(rows, f32)
		wideHalf512(rows, f16)
		wideHalf512(rows, bf16)
		wideInt8x512(rows)
		wideInt4x512(rows)
	}
	for rows := 1; rows <= 6; rows++ {
		dot512(rows, false)
		dot512(rows, true)
	}
	for rows := 1; rows <= 4; rows++ {
		dotInt8x2(rows)
		dotInt4x2("Int4", rows)
		dotInt4x2("Int4Min", rows)
	}
	nibbles512()
	bytesOfNibbles2()
	quantize512()
	quantize2()
	gather4()
	decodeHalf512(f16)
	decodeHalf512(bf16)
	decodeInt8x512()
	decodeInt4x512()
	for rows := 1; rows <= 6; rows++ {
		tile2(rows)
	}
	half2(f16)
	half2(bf16)
	decodeHalf2(f16)
	decodeHalf2(bf16)
	decodeInt8x2()
	decodeInt4x2()
	siluMul512()
	exp512()
	largest512()
	Generate()
}
