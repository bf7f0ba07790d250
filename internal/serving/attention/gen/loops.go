package main

import "github.com/mmcloughlin/avo/operand"

// loops generates the reference loops of package testkit/benchtest: one only reads, the other only multiplies.
func loops(g *gen) {
	// n is a multiple of 512 bytes.
	g.function("read", "func(p *byte, n int)")
	p, n := g.param("p"), g.param("n")
	g.asm.SHRQ(operand.U8(9), n)
	g.zeros(8)
	g.loop(n, func() {
		for i := range 512 / g.bytes() {
			g.asm.VADDPS(mem(p, i*g.bytes()), g.regs[i%8], g.regs[i%8])
		}
		g.asm.ADDQ(operand.I32(512), p)
	})
	g.end()

	// n rounds of 24 multiplications, added to 12 sums.
	g.function("multiply", "func(n int)")
	n = g.param("n")
	g.zeros(12)
	g.loop(n, func() {
		for i := range 24 {
			g.asm.VFMADD231PS(g.regs[13], g.regs[14], g.regs[i%12])
		}
	})
	g.end()
}
