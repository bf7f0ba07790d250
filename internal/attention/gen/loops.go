package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
)

// loops are what package speed compares with: they only read, and only multiply.
func loops(g *gen) {
	// n is a multiple of 512 bytes.
	g.Function("read" + g.suffix)
	g.functions = append(g.functions, "read"+g.suffix)
	g.Attributes(attr.NOSPLIT)
	g.SignatureExpr("func(p *byte, n int)")
	p, n := g.GP64(), g.GP64()
	g.Load(g.Param("p"), p)
	g.Load(g.Param("n"), n)
	g.SHRQ(operand.U8(9), n)
	for i := range 8 {
		g.zero(i)
	}
	g.loop(n, func() {
		for i := range 512 / g.bytes() {
			g.VADDPS(mem(p, i*g.bytes()), g.regs[i%8], g.regs[i%8])
		}
		g.ADDQ(operand.I32(512), p)
	})
	g.end()

	// n rounds of 24 multiplications, in 12 sums.
	g.Function("multiply" + g.suffix)
	g.functions = append(g.functions, "multiply"+g.suffix)
	g.Attributes(attr.NOSPLIT)
	g.SignatureExpr("func(n int)")
	n = g.GP64()
	g.Load(g.Param("n"), n)
	for i := range 12 {
		g.zero(i)
	}
	g.loop(n, func() {
		for i := range 24 {
			g.VFMADD231PS(g.regs[13], g.regs[14], g.regs[i%12])
		}
	})
	g.end()
}
