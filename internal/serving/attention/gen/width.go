package main

import "github.com/mmcloughlin/avo/reg"

// A width is an instruction set and its registers. The generators choose which vector register an instruction uses. If
// they left this choice to package avo, it might give a register above 15 to an instruction that cannot use it.
type width struct {
	name, suffix string
	lanes        int // float32 per register
	regs         []reg.VecPhysical
	half         []reg.VecPhysical // the lower halves of regs
	rows         int               // of a panel kernel
	tileRows     []int             // of the tile kernels
	vnni         bool              // one instruction sums products of integers
}

var avx512 = width{
	name: "avx512", suffix: "AVX512", lanes: 16,
	regs: vectors(reg.S512), half: halves, rows: 12, tileRows: []int{8, 4, 2, 1},
}

// avx512vnni is avx512 with other functions where VNNI makes them faster.
var avx512vnni = func() width {
	w := avx512
	w.name, w.suffix, w.vnni = "avx512vnni", "AVX512VNNI", true
	return w
}()

var avx2 = width{
	name: "avx2", suffix: "AVX2", lanes: 8,
	regs: halves[:16], half: quarters[:16], rows: 4, tileRows: []int{4, 2, 1},
}

var halves, quarters = vectors(reg.S256), vectors(reg.S128)

func vectors(size reg.Spec) (all []reg.VecPhysical) {
	for i := range reg.Index(32) {
		all = append(all, reg.Vector.Lookup(i, size).(reg.VecPhysical))
	}
	return all
}

func (w width) wide() bool { return w.lanes == 16 }

func (w width) bytes() int { return 4 * w.lanes }

func (g *gen) zero(i int) {
	if i < 16 {
		g.asm.VXORPS(quarters[i], quarters[i], quarters[i]) // clears the whole register
		return
	}
	g.asm.VPXORD(g.regs[i], g.regs[i], g.regs[i])
}

func (g *gen) zeros(n int) {
	for i := range n {
		g.zero(i)
	}
}
