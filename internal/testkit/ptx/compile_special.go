package ptx

import "strings"

func compileExit(line *instruction, _ string, operands []operand) error {
	if len(operands) != 0 {
		return line.unknown()
	}
	line.flow = exit
	return nil
}

func compileNothing(line *instruction, _ string, _ []operand) error {
	line.run = func(*warp, uint32) error { return nil }
	return nil
}

// compileBarrier compiles bar.sync 0 and bar.warp.sync 0xffffffff. The text has the operands, which are constants.
func compileBarrier(line *instruction, rest string, _ []operand) error {
	_, operands, _ := strings.Cut(line.text, "sync")
	switch {
	case rest == "sync" && strings.TrimSpace(operands) == "0":
		line.flow = barrier
	case rest == "warp.sync" && strings.TrimSpace(operands) == "0xffffffff":
		line.flow = together
		return compileNothing(line, rest, nil)
	default:
		return line.unknown()
	}
	return nil
}

// place reads the space and the type of a load, a store or an atomic operation. The rest of the opcode changes no result.
func (line *instruction) place(rest string) (s space, t scalar, err error) {
	parts := strings.Split(rest, ".")
	for _, part := range parts[:len(parts)-1] {
		switch part {
		case "global", "shared", "param":
			s = spaces[part]
		case "nc", "L1::no_allocate", "v2", "v4", "add":
		default:
			return s, t, line.unknown()
		}
	}
	t, err = scalarOf(parts[len(parts)-1])
	return s, t, err
}

func compileLoad(line *instruction, rest string, operands []operand) error {
	s, t, err := line.place(rest)
	if err != nil {
		return err
	}
	if len(operands) != 2 || !operands[1].address {
		return line.unknown()
	}
	line.writes, line.run = operands[0].registers, load(s, t, operands[0].registers, operands[1])
	return nil
}

func compileStore(line *instruction, rest string, operands []operand) error {
	s, t, err := line.place(rest)
	if err != nil {
		return err
	}
	if len(operands) != 2 || !operands[0].address {
		return line.unknown()
	}
	line.run = store(s, t, operands[0], operands[1].registers)
	return nil
}

func compileAtomic(line *instruction, rest string, operands []operand) error {
	s, t, err := line.place(rest)
	if err != nil {
		return err
	}
	parts := strings.Split(rest, ".")
	f := integer(parts[max(len(parts)-2, 0)], t)
	if f == nil || len(operands) != 3 || !operands[1].address {
		return line.unknown()
	}
	line.writes = operands[0].registers
	line.run = atomic(s, t, operands[0].registers[0], operands[1], operands[2].registers[0], f)
	return nil
}

func compileCopy(line *instruction, rest string, operands []operand) error {
	switch {
	case rest == "async.commit_group" && len(operands) == 0:
		line.run = everyCopy(func(c *copies, _ int) { c.commit() }, 0)
	case rest == "async.wait_group" && len(operands) == 1:
		line.run = everyCopy(func(c *copies, left int) { c.wait(left) }, operands[0].registers[0])
	case strings.HasPrefix(rest, "async.c") && len(operands) == 4:
		return line.compileCopyAsync(strings.TrimPrefix(rest, "async."), operands)
	default:
		return line.unknown()
	}
	return nil
}

// compileCopyAsync compiles cp.async with the number of bytes that come from global memory. Only cp.async.ca copies less
// than 16 bytes.
func (line *instruction) compileCopyAsync(kind string, operands []operand) error {
	size := number(strings.TrimSpace(strings.Split(line.text, ",")[2]))
	switch {
	case kind == "cg.shared.global.L2::128B" && size == 16:
	case kind == "ca.shared.global" && (size == 4 || size == 8 || size == 16):
	default:
		return line.unknown()
	}
	line.run = copyAsync(operands[0], operands[1], size, operands[3].registers[0])
	return nil
}

// everyCopy returns the operation that calls a function with the copies of each lane and the value of a register.
func everyCopy(function func(c *copies, value int), register int) operation {
	return func(w *warp, mask uint32) error {
		for lane := range w.copies {
			if mask>>lane&1 != 0 {
				function(&w.copies[lane], int(w.registers[register][lane]))
			}
		}
		return nil
	}
}

func compileMultiply(line *instruction, rest string, operands []operand) error {
	value := halfValue
	switch rest {
	case "sync.aligned.m16n8k16.row.col.f32.f16.f16.f32":
	case "sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32":
		value = bfloatValue
	default:
		return line.unknown()
	}
	if len(operands) != 4 {
		return line.unknown()
	}
	for i, n := range []int{4, 4, 2, 4} {
		if len(operands[i].registers) != n {
			return line.unknown()
		}
	}
	line.flow, line.writes = together, operands[0].registers
	line.run = multiply(value, operands[0].registers, operands[1].registers, operands[2].registers, operands[3].registers)
	return nil
}

func compileLoadMatrices(line *instruction, rest string, operands []operand) error {
	number, transposed := map[string]int{"sync.aligned.m8n8.x1": 1, "sync.aligned.m8n8.x2": 2, "sync.aligned.m8n8.x4": 4}, false
	rest, shared := strings.CutSuffix(rest, ".shared.b16")
	rest, transposed = strings.CutSuffix(rest, ".trans")
	if !shared || len(operands) != 2 || number[rest] == 0 || len(operands[0].registers) != number[rest] || !operands[1].address {
		return line.unknown()
	}
	line.flow, line.writes = together, operands[0].registers
	line.run = loadMatrices(operands[0].registers, operands[1], transposed)
	return nil
}

func compileShuffle(line *instruction, rest string, operands []operand) error {
	mode, hasMode := strings.CutPrefix(rest, "sync.")
	mode, words := strings.CutSuffix(mode, ".b32")
	if !hasMode || !words || len(operands) != 5 || !strings.HasSuffix(line.text, "0xffffffff") {
		return line.unknown()
	}
	switch mode {
	case "up", "down", "bfly", "idx":
	default:
		return line.unknown()
	}
	line.flow, line.writes = together, operands[0].registers
	line.run = shuffle(mode, operands[0].registers[0], operands[1].registers[0], operands[2].registers[0], operands[3].registers[0])
	return nil
}

func compileVote(line *instruction, rest string, operands []operand) error {
	if rest != "sync.any.pred" || len(operands) != 3 || !strings.HasSuffix(line.text, "0xffffffff") {
		return line.unknown()
	}
	line.flow, line.writes = together, operands[0].registers
	line.run = vote(operands[0].registers[0], operands[1].registers[0])
	return nil
}
