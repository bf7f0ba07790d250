package main

import (
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/serving/assembly"
)

// unit is the number of inputs in a unit, for kinds whose field units is true. A unit consists of blocks.
const unit = 64

// A kind is a type of weights that are stored as integers in blocks with a scale.
type kind struct {
	name       string
	bits       int
	scaleBytes int  // bytes of a scale: 2 for f16, 4 for f32
	minima     bool // scales are followed by minima
	units      bool // scales and minima belong to units; a block begins with 8-bit factors of its unit's scales and minima
	values     bool // the integers are indices of a table of 16 values
	e4m3       bool // the integers are the bits of E4M3 numbers
}

var blockKinds = []kind{
	{name: "Int8", bits: 8, scaleBytes: 2},
	{name: "Int4", bits: 4, scaleBytes: 2, minima: true},
	{name: "Int8Min", bits: 8, scaleBytes: 2, minima: true},
	{name: "Int8K", bits: 8, scaleBytes: 2, units: true},
	{name: "Int8KMin", bits: 8, scaleBytes: 2, units: true, minima: true},
	{name: "Int4K", bits: 4, scaleBytes: 2, units: true, minima: true},
	{name: "Int4F", bits: 4, scaleBytes: 4, minima: true},
	{name: "E4M3", bits: 8, scaleBytes: 4, e4m3: true},
	{name: "Table4", bits: 4, scaleBytes: 4, values: true},
}

func (k kind) table() string {
	if k.values {
		return ", table *float32"
	}
	return ""
}

func (k kind) withMinima(n int) int {
	if k.minima {
		return 2 * n
	}
	return n
}

// headBytes returns the size of the scales and minima at the beginning of a block, or of a unit if the kind has
// units.
func (k kind) headBytes() int { return k.withMinima(panel * k.scaleBytes) }

func (k kind) inputsPerStep() int { return 8 / k.bits }

// A block emits the code that reads one block of weights for several outputs of the matrix. Each register in scales
// has the scales of some of these outputs, and each register in mins has their minima.
type block struct {
	kind
	width
	scales, mins []VecVirtual
	mask         VecVirtual
	power        VecVirtual // factor of the scales of E4M3
	tables       []VecVirtual
}

func newBlock(w width, k kind, vectors int) *block {
	b := &block{kind: k, width: w, scales: w.regs(vectors)}
	if k.minima {
		b.mins = w.regs(vectors)
	}
	switch {
	case k.values:
		table := arg("table")
		b.tables = w.regs(64 / w.bytes)
		for i, t := range b.tables {
			asm.VMOVUPS(Mem{Base: table, Disp: i * w.bytes}, t)
		}
	case k.bits == 4:
		b.mask = w.constant(15)
	case k.e4m3:
		b.mask, b.power = w.constant(0x87f00000), w.constant((127+120)<<23) // 2^120
	}
	return b
}

func (w width) constant(bits uint32) VecVirtual {
	z, x, value := w.reg(), asm.XMM(), asm.GP32()
	asm.MOVL(U32(bits), value)
	asm.VMOVD(value, x)
	asm.VPBROADCASTD(x, z)
	return z
}

func (w width) bitAnd(mask, src, dst VecVirtual) {
	if w.bytes == 64 {
		asm.VPANDD(mask, src, dst)
	} else {
		asm.VPAND(mask, src, dst)
	}
}

func (b *block) all(w Register, body func(w, n Register)) {
	asm.ADDQ(U32(uint32(b.headBytes())), w)
	b.pass(w, nil, body)
}

// pass emits a loop over blocks. For each block, the loop loads the scales and minima into registers, and then runs the
// code of body. In this code, register n has the number of the block's inputs, and register w has the address of their
// weights.
//
// The scales and minima are at the beginning of a block or unit (see headBytes). The weights follow; in kinds with
// units, the factors of a block precede its weights. Register weights has the address of what follows the first scales
// and minima. If headOffset is nil, the loop loads the scales and minima of all 64 outputs.
//
// A kernel that computes only some outputs in a pass makes register weights point to the first weight of these outputs.
// Register headOffset then has the distance from this weight to the first scale of these outputs. The distance is
// negative.
func (b *block) pass(weights, headOffset Register, body func(w, n Register)) {
	w, head, n, rest, count := asm.GP64(), asm.GP64(), asm.GP64(), asm.GP64(), asm.GP64()
	asm.MOVQ(weights, w)
	asm.Load(asm.Param("blocks"), count)
	loop("unit", count, 1, func() {
		if headOffset == nil {
			asm.LEAQ(Mem{Base: w, Disp: -b.headBytes()}, head)
		} else {
			asm.LEAQ(Mem{Base: w, Index: headOffset, Scale: 1}, head)
		}
		if b.units {
			asm.MOVQ(U32(unit), rest)
			asm.Label("block")
		}
		b.load(head, w)
		asm.Load(asm.Param("block"), n)
		body(w, n)
		if b.units {
			asm.SUBQ(address("block"), rest)
			asm.JNZ(LabelRef("block"))
		}
		asm.ADDQ(U32(uint32(b.headBytes())), w)
	})
}

func (b *block) load(head, w Register) {
	for i := range b.scales {
		b.loadOne(b.scales[i], head, w, i, 0)
		if b.minima {
			b.loadOne(b.mins[i], head, w, i, 1)
		}
	}
	if b.units {
		asm.ADDQ(U32(uint32(b.withMinima(panel))), w)
	}
}

func (b *block) loadOne(z VecVirtual, head, w Register, i, second int) {
	m := Mem{Base: head, Disp: second*panel*b.scaleBytes + i*b.bytes/4*b.scaleBytes}
	if b.scaleBytes == 4 {
		asm.VMOVUPS(m, z)
		if b.e4m3 {
			asm.VMULPS(b.power, z, z)
		}
		return
	}
	asm.VCVTPH2PS(m, z)
	if b.units {
		factor := b.reg()
		asm.VPMOVSXBD(Mem{Base: w, Disp: second*panel + i*b.bytes/4}, factor)
		asm.VCVTDQ2PS(factor, factor)
		asm.VMULPS(factor, z, z)
	}
}

func (b *block) weights(z VecVirtual, i int) {
	if b.values || b.e4m3 {
		asm.VMULPS(b.scales[i], z, z)
		return
	}
	asm.VCVTDQ2PS(z, z)
	if b.minima {
		asm.VFMADD213PS(b.mins[i], b.scales[i], z)
	} else {
		asm.VMULPS(b.scales[i], z, z)
	}
}

func (b *block) load8(w Register, i int, z VecVirtual) {
	asm.VPMOVSXBD(Mem{Base: w, Disp: i * b.bytes / 4}, z)
	if b.e4m3 { // as f32, the bits are the number divided by 2^120
		asm.VPSLLD(Imm(20), z, z)
		b.bitAnd(b.mask, z, z)
	}
	b.weights(z, i)
}

func (b *block) load4(w Register, i int) (low, high VecVirtual) {
	low, high = b.reg(), b.reg()
	if b.values {
		bytes := b.reg()
		asm.VPMOVZXBD(Mem{Base: w, Disp: i * b.bytes / 4}, bytes)
		b.lookUp(bytes, low)
		asm.VPSRLD(Imm(4), bytes, bytes)
		b.lookUp(bytes, high)
	} else {
		asm.VPMOVZXBD(Mem{Base: w, Disp: i * b.bytes / 4}, high)
		b.bitAnd(b.mask, high, low)
		asm.VPSRLD(Imm(4), high, high)
	}
	b.weights(low, i)
	b.weights(high, i)
	return low, high
}

// lookUp emits the code that looks up a value of the table for each lane of indices, and writes the value to the same
// lane of dst. The index is in the lowest 4 bits of the lane.
func (b *block) lookUp(indices, dst VecVirtual) {
	asm.VPERMPS(b.tables[0], indices, dst)
	if b.bytes == 64 {
		return
	}
	second, fourth := b.reg(), b.reg()
	asm.VPERMPS(b.tables[1], indices, second)
	asm.VPSLLD(Imm(28), indices, fourth)
	asm.VBLENDVPS(fourth, second, dst, dst)
}

// decodeBlocks generates the kernel that converts blocks to f32, 64 outputs at a time with AVX-512 and 32 with AVX2.
func decodeBlocks(wide width, kind kind) {
	begin("decode"+kind.name+wide.name, "func(dst *float32, w *byte, blocks, block uintptr"+kind.table()+")")
	const vectors = 4
	dst, head, values, headOffset, row := arg("dst"), arg("w"), asm.GP64(), asm.GP64(), asm.GP64()
	passes, size := asm.GP64(), wide.bytes
	b := newBlock(wide, kind, vectors)
	asm.LEAQ(Mem{Base: head, Disp: kind.headBytes()}, values)
	asm.MOVQ(U32(uint32(panel*4/vectors/size)), passes)
	loop("pass", passes, 1, func() {
		asm.MOVQ(dst, row)
		asm.MOVQ(head, headOffset)
		asm.SUBQ(values, headOffset)
		b.pass(values, headOffset, func(w, n Register) {
			loop("step", n, kind.inputsPerStep(), func() {
				for i := range vectors {
					mem := Mem{Base: row, Disp: i * size}
					if kind.bits == 8 {
						z := wide.reg()
						b.load8(w, i, z)
						asm.VMOVUPS(z, mem)
						continue
					}
					low, high := b.load4(w, i)
					asm.VMOVUPS(low, mem)
					asm.VMOVUPS(high, mem.Offset(panel*4))
				}
				asm.ADDQ(U32(panel), w)
				asm.ADDQ(U32(uint32(panel*4*kind.inputsPerStep())), row)
			})
		})
		asm.ADDQ(U32(uint32(vectors*size/4*kind.scaleBytes)), head)
		asm.ADDQ(U32(uint32(vectors*size/4)), values)
		asm.ADDQ(U32(uint32(vectors*size)), dst)
	})
	end()
}

func decodeHalf(w width, kind string) {
	begin("decode"+kind+w.name, "func(dst *float32, w *byte, k uintptr)")
	dst, src, k := arg("dst"), arg("w"), arg("k")
	loop("step", k, 1, func() {
		for i, z := range w.regs(panel * 4 / w.bytes) {
			assembly.LoadFloats(asm, kind, Mem{Base: src, Disp: i * w.bytes / 2}, z)
			asm.VMOVUPS(z, Mem{Base: dst, Disp: i * w.bytes})
		}
		asm.ADDQ(U32(panel*2), src)
		asm.ADDQ(U32(panel*4), dst)
	})
	end()
}
