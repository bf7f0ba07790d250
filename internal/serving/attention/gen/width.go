package main

import "github.com/mmcloughlin/avo/reg"

// A width is an instruction set and its registers. The generators choose the numbers of vector registers themselves,
// because avo may give a register above 15 to an instruction that cannot use it.
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
	regs: []reg.VecPhysical{
		reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7, reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12, reg.Z13,
		reg.Z14, reg.Z15,
		reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23, reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28,
		reg.Z29, reg.Z30, reg.Z31,
	},
	half:     halves,
	rows:     12,
	tileRows: []int{8, 4, 2, 1},
}

// avx512vnni is avx512 with other functions where VNNI makes them faster.
var avx512vnni = func() width {
	w := avx512
	w.name, w.suffix, w.vnni = "avx512vnni", "AVX512VNNI", true
	return w
}()

var avx2 = width{
	name: "avx2", suffix: "AVX2", lanes: 8,
	regs:     halves[:16],
	half:     quarters[:16],
	rows:     4,
	tileRows: []int{4, 2, 1},
}

var halves = []reg.VecPhysical{
	reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7, reg.Y8, reg.Y9, reg.Y10, reg.Y11, reg.Y12, reg.Y13,
	reg.Y14, reg.Y15,
	reg.Y16, reg.Y17, reg.Y18, reg.Y19, reg.Y20, reg.Y21, reg.Y22, reg.Y23, reg.Y24, reg.Y25, reg.Y26, reg.Y27, reg.Y28,
	reg.Y29, reg.Y30, reg.Y31,
}

var quarters = []reg.VecPhysical{
	reg.X0, reg.X1, reg.X2, reg.X3, reg.X4, reg.X5, reg.X6, reg.X7, reg.X8, reg.X9, reg.X10, reg.X11, reg.X12, reg.X13,
	reg.X14, reg.X15,
	reg.X16, reg.X17, reg.X18, reg.X19, reg.X20, reg.X21, reg.X22, reg.X23, reg.X24, reg.X25, reg.X26, reg.X27, reg.X28,
	reg.X29, reg.X30, reg.X31,
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

// zeros clears the first n registers.
func (g *gen) zeros(n int) {
	for i := range n {
		g.zero(i)
	}
}
