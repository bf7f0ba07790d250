package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/serving/assembly"
)

const wideProduct = "func(sums *float32, x *float32, w *byte, prefetchAddr uintptr, prefetchStep uintptr, k uintptr)"

// A wide generates a kernel that multiplies rows of x by a panel and adds the products to sums. The sums have 64 values
// a row. In x, the values of all rows for one input are adjacent. The kernel makes 2 or 4 passes over the weights. Each
// computes 32 or 16 of the 64 outputs, as many as fit into registers for all rows. A pass converts each of its weights
// to a float once, and multiplies it by values of x in memory. An iteration multiplies the weights of one input, or of
// two inputs if weights have 4 bits. In each iteration, the kernel prefetches the cache line at prefetchAddr and adds
// prefetchStep to prefetchAddr.
type wide struct {
	rows, vectors                          int
	sums, x, w, prefetchAddr, prefetchStep Register
	current                                Register // the current values of x
	acc                                    []VecVirtual
}

func newWide(rows int, kind, signature string) *wide {
	begin(fmt.Sprintf("wide%sAVX512x%d", kind, rows), signature)
	k := &wide{rows: rows, vectors: 1, current: asm.GP64()}
	if rows <= 12 {
		k.vectors = 2
	}
	k.sums, k.x, k.w = arg("sums"), arg("x"), arg("w")
	k.prefetchAddr, k.prefetchStep = arg("prefetchAddr"), arg("prefetchStep")
	k.acc = zmms(rows * k.vectors)
	return k
}

func (k *wide) passes(body func()) {
	count := asm.GP64()
	asm.MOVQ(U32(uint32(panel/16/k.vectors)), count)
	loop("pass", count, 1, func() {
		for i, z := range k.acc {
			asm.VMOVUPS(k.sum(i), z)
		}
		asm.MOVQ(k.x, k.current)
		body()
		for i, z := range k.acc {
			asm.VMOVUPS(z, k.sum(i))
		}
		asm.ADDQ(U32(uint32(k.vectors*64)), k.sums)
	})
	end()
}

func (k *wide) sum(i int) Mem {
	return Mem{Base: k.sums, Disp: i/k.vectors*panel*4 + i%k.vectors*64}
}

// add emits the code that multiplies a vector of weights by a value of each row, and adds the products to the sums of
// the rows. The weights and the values are for the same input: for the current input if i is 0, for the next input if i
// is 1. Register w has the weights of 16 outputs for this input. A pass computes one or two vectors of 16 outputs, and
// vector is the index of the vector to which the weights belong.
func (k *wide) add(w VecVirtual, vector, i int) {
	for r := range k.rows {
		asm.VFMADD231PS_BCST(Mem{Base: k.current, Disp: (i*k.rows + r) * 4}, w, k.acc[r*k.vectors+vector])
	}
}

// next emits the code that prefetches a cache line and advances the current values of x by n inputs.
func (k *wide) next(n int) {
	asm.PREFETCHT0(Mem{Base: k.prefetchAddr})
	asm.ADDQ(k.prefetchStep, k.prefetchAddr)
	asm.ADDQ(U32(uint32(n*k.rows*4)), k.current)
}

func wideHalf512(rows int, kind string) {
	k := newWide(rows, kind, wideProduct)
	weights, n := asm.GP64(), asm.GP64()
	k.passes(func() {
		asm.MOVQ(k.w, weights)
		asm.Load(asm.Param("k"), n)
		loop("step", n, 1, func() {
			for v := range k.vectors {
				z := asm.ZMM()
				assembly.LoadFloats(asm, kind, Mem{Base: weights, Disp: v * 16 * sizes[kind]}, z)
				k.add(z, v, 0)
			}
			k.next(1)
			asm.ADDQ(U32(uint32(panel*sizes[kind])), weights)
		})
		asm.ADDQ(U32(uint32(k.vectors*16*sizes[kind])), k.w)
	})
}

func wideBlocks512(rows int, kind kind) {
	k := newWide(rows, kind.name, "func(sums *float32, x *float32, w *byte, prefetchAddr, prefetchStep, blocks, block uintptr"+
		kind.table()+")")
	block := newBlock(avx512, kind, k.vectors)
	// In the first block, head is the address of the scales of the current pass's outputs, and values is the address of
	// the integers of these outputs. After each pass, head advances by the size of the scales of a pass, and values by 16
	// bytes for each vector.
	head, values, headOffset := asm.GP64(), asm.GP64(), asm.GP64()
	asm.MOVQ(k.w, head)
	asm.LEAQ(Mem{Base: k.w, Disp: kind.headBytes()}, values)
	k.passes(func() {
		asm.MOVQ(head, headOffset)
		asm.SUBQ(values, headOffset)
		block.pass(values, headOffset, func(w, n Register) {
			loop("step", n, kind.inputsPerStep(), func() {
				for v := range k.vectors {
					if kind.bits == 8 {
						z := asm.ZMM()
						block.load8(w, v, z)
						k.add(z, v, 0)
						continue
					}
					low, high := block.load4(w, v)
					k.add(low, v, 0)
					k.add(high, v, 1)
				}
				k.next(kind.inputsPerStep())
				asm.ADDQ(U32(panel), w)
			})
		})
		asm.ADDQ(U32(uint32(k.vectors*16*kind.scaleBytes)), head)
		asm.ADDQ(U32(uint32(k.vectors*16)), values)
	})
}

// gather4 generates the kernel that interleaves n values of four rows. It stores the four values of input k at dst +
// k × stride.
func gather4() {
	begin("gather4AVX512", "func(dst *float32, stride uintptr, a, b, c, d *float32, n uintptr)")
	dst, stride := arg("dst"), arg("stride")
	rows := []Register{arg("a"), arg("b"), arg("c"), arg("d")}
	n, three := arg("n"), asm.GP64()
	asm.LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, three)
	loop("step", n, 16, func() {
		loaded, pairs, out := zmms(4), zmms(4), zmms(4)
		for i, row := range rows {
			asm.VMOVUPS(Mem{Base: row}, loaded[i])
			asm.ADDQ(U32(64), row)
		}
		asm.VUNPCKLPS(loaded[1], loaded[0], pairs[0]) // a0 b0 a1 b1 in each lane
		asm.VUNPCKHPS(loaded[1], loaded[0], pairs[1]) // a2 b2 a3 b3
		asm.VUNPCKLPS(loaded[3], loaded[2], pairs[2])
		asm.VUNPCKHPS(loaded[3], loaded[2], pairs[3])
		asm.VUNPCKLPD(pairs[2], pairs[0], out[0]) // a0 b0 c0 d0
		asm.VUNPCKHPD(pairs[2], pairs[0], out[1])
		asm.VUNPCKLPD(pairs[3], pairs[1], out[2])
		asm.VUNPCKHPD(pairs[3], pairs[1], out[3])
		for lane := range 4 {
			for i, m := range []Mem{{Base: dst}, {Base: dst, Index: stride, Scale: 1}, {Base: dst, Index: stride, Scale: 2},
				{Base: dst, Index: three, Scale: 1}} {
				asm.VEXTRACTF32X4(Imm(uint64(lane)), out[i], m)
			}
			asm.LEAQ(Mem{Base: dst, Index: stride, Scale: 4}, dst)
		}
	})
	end()
}
