package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

const (
	wideProduct       = "func(sums *float32, x *float32, w *byte, ahead uintptr, step uintptr, k uintptr)"
	wideBlocksProduct = "func(sums *float32, x *float32, w *byte, ahead uintptr, step uintptr, blocks uintptr, block uintptr)"
)

// A wide kernel adds rows of x, of which the values of each k lie side by side, times a panel to
// sums, which are 64 values a row. It goes over the weights once for each 16 or 32 of the 64
// outputs, as many as leave registers for all rows: a weight is made a float once in a pass, and
// each product takes the value of x from memory. With each k it asks for the memory at ahead,
// which moves on by step bytes: what is read next.
type wide struct {
	rows, vectors           int
	sums, x, w, ahead, step Register
	at                      Register // in x
	acc                     []VecVirtual
}

// newWide begins a kernel.
func newWide(rows int, kind, signature string) *wide {
	TEXT(fmt.Sprintf("wide%sAVX512x%d", kind, rows), NOSPLIT, signature)
	Doc(fmt.Sprintf("wide%sAVX512x%d adds %d rows of x times a panel of %s weights to sums.", kind, rows, rows, kind))
	Pragma("noescape")
	k := &wide{rows: rows, vectors: 1, at: GP64()}
	if rows <= 12 {
		k.vectors = 2
	}
	k.sums, k.x, k.w = Load(Param("sums"), GP64()), Load(Param("x"), GP64()), Load(Param("w"), GP64())
	k.ahead, k.step = Load(Param("ahead"), GP64()), Load(Param("step"), GP64())
	k.acc = zmms(rows * k.vectors)
	return k
}

// passes runs body for each of the passes, with the sums in registers.
func (k *wide) passes(body func()) {
	count := GP64()
	MOVQ(U32(uint32(panel/16/k.vectors)), count)
	loop("pass", count, 1, func() {
		for i, z := range k.acc {
			VMOVUPS(k.sum(i), z)
		}
		MOVQ(k.x, k.at)
		body()
		for i, z := range k.acc {
			VMOVUPS(z, k.sum(i))
		}
		ADDQ(U32(uint32(k.vectors*64)), k.sums)
	})
	VZEROUPPER()
	RET()
}

func (k *wide) sum(i int) Mem {
	return Mem{Base: k.sums, Disp: i/k.vectors*panel*4 + i%k.vectors*64}
}

// add adds weights of outputs times the values of x that are i times k further on.
func (k *wide) add(w VecVirtual, vector, i int) {
	for r := range k.rows {
		VFMADD231PS_BCST(Mem{Base: k.at, Disp: (i*k.rows + r) * 4}, w, k.acc[r*k.vectors+vector])
	}
}

// next asks for memory and goes on by n times k.
func (k *wide) next(n int) {
	PREFETCHT0(Mem{Base: k.ahead})
	ADDQ(k.step, k.ahead)
	ADDQ(U32(uint32(n*k.rows*4)), k.at)
}

// wideHalf512 multiplies by f32, f16 or bf16 weights.
func wideHalf512(rows int, kind string) {
	k := newWide(rows, kind, wideProduct)
	from, n := GP64(), GP64()
	k.passes(func() {
		MOVQ(k.w, from)
		Load(Param("k"), n)
		loop("step", n, 1, func() {
			for v := range k.vectors {
				z := ZMM()
				loadHalf512(kind, Mem{Base: from, Disp: v * 16 * sizes[kind]}, z)
				k.add(z, v, 0)
			}
			k.next(1)
			ADDQ(U32(uint32(panel*sizes[kind])), from)
		})
		ADDQ(U32(uint32(k.vectors*16*sizes[kind])), k.w)
	})
}

// blocks runs body for each block of weights in each pass: the scales lie at
// scale, and the values, which begin skip bytes after them, at values. body goes over the values,
// which take perTwo bytes for 2 k.
func (k *wide) blocks(skip, perTwo int, body func(scale, values, n Register)) {
	scale, values, first, size, blocks, n := GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	LEAQ(Mem{Base: k.w, Disp: skip}, first)
	Load(Param("block"), size)
	IMUL3Q(U32(uint32(perTwo/2)), size, size)
	ADDQ(U32(uint32(skip)), size)
	k.passes(func() {
		MOVQ(k.w, scale)
		MOVQ(first, values)
		Load(Param("blocks"), blocks)
		loop("block", blocks, 1, func() {
			Load(Param("block"), n)
			body(scale, values, n)
			ADDQ(size, scale)
			ADDQ(U32(uint32(skip)), values)
		})
		ADDQ(U32(uint32(k.vectors*32)), k.w)
		ADDQ(U32(uint32(k.vectors*16)), first)
	})
}

// wideInt8x512 multiplies by blocks of 8-bit weights.
func wideInt8x512(rows int) {
	k := newWide(rows, "Int8", wideBlocksProduct)
	scales := zmms(k.vectors)
	k.blocks(panel*2, panel*2, func(scale, values, n Register) {
		for v, z := range scales {
			VCVTPH2PS(Mem{Base: scale, Disp: v * 32}, z)
		}
		loop("step", n, 1, func() {
			for v := range k.vectors {
				z := ZMM()
				VPMOVSXBD(Mem{Base: values, Disp: v * 16}, z)
				VCVTDQ2PS(z, z)
				VMULPS(scales[v], z, z)
				k.add(z, v, 0)
			}
			k.next(1)
			ADDQ(U32(panel), values)
		})
	})
}

// wideInt4x512 multiplies by blocks of 4-bit weights.
func wideInt4x512(rows int) {
	k := newWide(rows, "Int4", wideBlocksProduct)
	scales, mins, mask := zmms(k.vectors), zmms(k.vectors), nibbleMask()
	k.blocks(panel*4, panel, func(scale, values, n Register) {
		for v, z := range scales {
			VCVTPH2PS(Mem{Base: scale, Disp: v * 32}, z)
			VCVTPH2PS(Mem{Base: scale, Disp: panel*2 + v*32}, mins[v])
		}
		loop("step", n, 2, func() {
			for v := range k.vectors {
				low, high := loadInt4x512(values, v, mask, scales[v], mins[v])
				k.add(low, v, 0)
				k.add(high, v, 1)
			}
			k.next(2)
			ADDQ(U32(panel), values)
		})
	})
}

// gather4 puts the values of four rows side by side: those of k at dst + k × stride.
func gather4() {
	TEXT("gather4AVX512", NOSPLIT, "func(dst *float32, stride uintptr, a, b, c, d *float32, n uintptr)")
	Doc("gather4AVX512 puts n values of 4 rows side by side, stride bytes from one k to the next; n is a multiple of 16.")
	Pragma("noescape")
	dst, stride := Load(Param("dst"), GP64()), Load(Param("stride"), GP64())
	rows := []Register{Load(Param("a"), GP64()), Load(Param("b"), GP64()), Load(Param("c"), GP64()), Load(Param("d"), GP64())}
	n, three := Load(Param("n"), GP64()), GP64()
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, three)
	loop("step", n, 16, func() {
		in, pairs, out := zmms(4), zmms(4), zmms(4)
		for i, row := range rows {
			VMOVUPS(Mem{Base: row}, in[i])
			ADDQ(U32(64), row)
		}
		VUNPCKLPS(in[1], in[0], pairs[0]) // a0 b0 a1 b1 in each lane
		VUNPCKHPS(in[1], in[0], pairs[1]) // a2 b2 a3 b3
		VUNPCKLPS(in[3], in[2], pairs[2])
		VUNPCKHPS(in[3], in[2], pairs[3])
		VUNPCKLPD(pairs[2], pairs[0], out[0]) // a0 b0 c0 d0
		VUNPCKHPD(pairs[2], pairs[0], out[1])
		VUNPCKLPD(pairs[3], pairs[1], out[2])
		VUNPCKHPD(pairs[3], pairs[1], out[3])
		for lane := range 4 {
			for i, m := range []Mem{{Base: dst}, {Base: dst, Index: stride, Scale: 1}, {Base: dst, Index: stride, Scale: 2}, {Base: dst, Index: three, Scale: 1}} {
				VEXTRACTF32X4(Imm(uint64(lane)), out[i], m)
			}
			LEAQ(Mem{Base: dst, Index: stride, Scale: 4}, dst)
		}
	})
	VZEROUPPER()
	RET()
}
