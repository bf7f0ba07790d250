package ptx

import (
	"fmt"
	"strings"
)

// compile sets what an instruction does. Before the call, reads has all operands, also those that it writes.
func (line *instruction) compile() error {
	name, rest, _ := strings.Cut(line.opcode, ".")
	compile, special := compilers[name]
	if !special {
		return line.compileScalar()
	}
	all := line.reads
	if err := compile(line, rest, all); err != nil {
		return err
	}
	if len(line.writes) > 0 {
		line.reads = all[1:]
	}
	return nil
}

// compilers are for the instructions that do more than compute a register from registers.
var compilers = map[string]func(line *instruction, rest string, operands []operand) error{
	"ret":      compileExit,
	"bar":      compileBarrier,
	"fence":    compileNothing, // memory has one order
	"ld":       compileLoad,
	"st":       compileStore,
	"atom":     compileAtomic,
	"cp":       compileCopy,
	"mma":      compileMultiply,
	"ldmatrix": compileLoadMatrices,
	"shfl":     compileShuffle,
	"vote":     compileVote,
}

// unknown is the error for an instruction that is not in the subset, or that has other operands.
func (line *instruction) unknown() error {
	hint := ""
	switch line.opcode {
	case "add.f32", "sub.f32", "mul.f32":
		hint = ": without .rn, NVIDIA's assembler may make an fma of it"
	}
	return fmt.Errorf("the interpreter does not know %s with %d operands%s", line.opcode, len(line.reads), hint)
}

// compileScalar compiles an instruction that computes a register from up to three registers.
func (line *instruction) compileScalar() error {
	all := line.reads
	if strings.HasPrefix(line.opcode, "mov.b") && len(all) == 2 && (len(all[0].registers) > 1 || len(all[1].registers) > 1) {
		return line.compileVectorMove()
	}
	f, operands := scalarFunction(line.opcode)
	if f == nil || len(all) != operands+1 {
		return line.unknown()
	}
	sources := [3]int{}
	for i, o := range all {
		if o.address || len(o.registers) != 1 {
			return line.unknown()
		}
		if i > 0 {
			sources[i-1] = o.registers[0]
		}
	}
	target := all[0].registers[0]
	line.writes, line.reads = all[0].registers, all[1:]
	line.run = func(w *warp, mask uint32) error {
		d, x, y, z := &w.registers[target], &w.registers[sources[0]], &w.registers[sources[1]], &w.registers[sources[2]]
		for i := range d {
			if mask>>i&1 != 0 {
				d[i] = f(x[i], y[i], z[i])
			}
		}
		return nil
	}
	return nil
}

// operandsOf are the numbers of operands that are not 2.
var operandsOf = map[string]int{"mov": 1, "neg": 1, "abs": 1, "not": 1, "sqrt": 1, "ex2": 1, "cvt": 1, "cvta": 1,
	"fma": 3, "mad": 3, "selp": 3, "bfe": 3, "prmt": 3}

// scalarFunction returns the function of an opcode and the number of its operands, or nil.
func scalarFunction(opcode string) (f function, operands int) {
	name, rest, _ := strings.Cut(opcode, ".")
	operands = 2
	if n, ok := operandsOf[name]; ok {
		operands = n
	}
	switch name {
	case "cvt":
		if strings.Contains(rest, "x2.") {
			operands = 2
		}
		return conversion(rest), operands
	case "cvta":
		return windowed(rest), operands
	}
	if f := floats[opcode]; f != nil {
		return f, operands
	}
	end := strings.LastIndexByte(opcode, '.')
	if end < 0 {
		return nil, 0
	}
	t, err := scalarOf(opcode[end+1:])
	if err != nil {
		return nil, 0
	}
	if compared, ok := strings.CutPrefix(opcode[:end], "setp."); ok {
		return comparison(compared, t), operands
	}
	if t.kind == 'f' {
		if name != "mov" && name != "selp" {
			return nil, 0
		}
	}
	return integer(opcode[:end], t), operands
}

// windowed returns the function of cvta, which converts an address of a space to a generic one, or back.
func windowed(rest string) function {
	switch rest {
	case "global.u64", "to.global.u64":
		return func(x, _, _ uint64) uint64 { return x }
	case "shared.u64":
		return func(x, _, _ uint64) uint64 { return x + window }
	case "to.shared.u64":
		return func(x, _, _ uint64) uint64 { return x - window }
	}
	return nil
}

// compileVectorMove compiles a mov between a register and the registers of its parts, the lowest first.
func (line *instruction) compileVectorMove() error {
	target, source := line.reads[0].registers, line.reads[1].registers
	t, err := scalarOf(line.opcode[len("mov."):])
	if err != nil || len(target) > 1 && len(source) > 1 {
		return line.unknown()
	}
	line.writes, line.reads = target, line.reads[1:]
	part := scalar{'b', t.bits / max(len(target), len(source))}
	line.run = func(w *warp, mask uint32) error {
		for lane := range 32 {
			if mask>>lane&1 == 0 {
				continue
			}
			var whole uint64
			for i, r := range source {
				if len(source) == 1 {
					whole = w.registers[r][lane]
				} else {
					whole |= part.value(w.registers[r][lane]) << (i * part.bits)
				}
			}
			for i, r := range target {
				if len(target) == 1 {
					w.registers[r][lane] = whole & t.mask()
				} else {
					w.registers[r][lane] = part.value(whole >> (i * part.bits))
				}
			}
		}
		return nil
	}
	return nil
}
