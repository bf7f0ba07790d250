package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// recurrences generates the kernels for states. Each computes a strip of n registers of columns. The rows are stride
// bytes apart.
func recurrences() {
	for _, w := range []width{avx512, avx2} {
		for _, n := range []int{4, 1} {
			updateState(w, n)
			readState(w, n)
		}
	}
}

// updateState generates the kernel that multiplies a state by decay, adds the outer product of key and value, and sets
// out to the product of query and the new state.
func updateState(w width, n int) {
	begin(fmt.Sprintf("updateState%sx%d", w.name, n),
		"func(out *float32, state *float32, value *float32, key *float32, query *float32, rows uintptr, stride uintptr, decay float32)")
	asm.Pragma("noescape")
	out, state, value, key, query, rows, stride := arg("out"), arg("state"), arg("value"), arg("key"), arg("query"), arg("rows"), arg("stride")
	decay, sums, values := w.reg(), w.regs(n), w.regs(n)
	asm.VBROADCASTSS(address("decay"), decay)
	for i := range n {
		zero(sums[i])
		asm.VMOVUPS(Mem{Base: value, Disp: w.bytes * i}, values[i])
	}
	k, q, s := w.reg(), w.reg(), w.regs(n)
	loop("row", rows, 1, func() {
		asm.VBROADCASTSS(Mem{Base: key}, k)
		asm.VBROADCASTSS(Mem{Base: query}, q)
		for i := range n {
			at := Mem{Base: state, Disp: w.bytes * i}
			asm.VMULPS(at, decay, s[i])
			asm.VFMADD231PS(k, values[i], s[i])
			asm.VMOVUPS(s[i], at)
			asm.VFMADD231PS(q, s[i], sums[i])
		}
		asm.ADDQ(stride, state)
		asm.ADDQ(U32(4), key)
		asm.ADDQ(U32(4), query)
	})
	storeStrip(w, sums, out)
}

// readState generates the kernel that sets out to the product of key and a state.
func readState(w width, n int) {
	begin(fmt.Sprintf("readState%sx%d", w.name, n), "func(out *float32, state *float32, key *float32, rows uintptr, stride uintptr)")
	asm.Pragma("noescape")
	out, state, key, rows, stride := arg("out"), arg("state"), arg("key"), arg("rows"), arg("stride")
	sums, k := w.regs(n), w.reg()
	for i := range n {
		zero(sums[i])
	}
	loop("row", rows, 1, func() {
		asm.VBROADCASTSS(Mem{Base: key}, k)
		for i := range n {
			asm.VFMADD231PS(Mem{Base: state, Disp: w.bytes * i}, k, sums[i])
		}
		asm.ADDQ(stride, state)
		asm.ADDQ(U32(4), key)
	})
	storeStrip(w, sums, out)
}

func zero(v VecVirtual) { asm.VXORPS(v, v, v) }

func storeStrip(w width, sums []VecVirtual, out Register) {
	for i, v := range sums {
		asm.VMOVUPS(v, Mem{Base: out, Disp: w.bytes * i})
	}
	end()
}
