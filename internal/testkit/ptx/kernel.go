package ptx

import "fmt"

// A Kernel is a function of a PTX file, ready to run. It counts what all of its runs execute.
type Kernel struct {
	name       string
	parameters []variable
	code       []instruction
	registers  int               // of a thread
	constants  map[uint64]int    // registers that hold constants
	specials   map[string]int    // registers that hold special registers, such as %tid.x
	symbols    map[string]uint64 // addresses, each in its own space
	declared   int               // bytes of shared memory, without the dynamic memory
	counted    []counter         // of each instruction
}

// A variable is a part of the memory of parameters.
type variable struct{ offset, size int }

// An instruction is one line of PTX.
type instruction struct {
	text   string
	opcode string // without the guard and the operands
	guard  int    // the register of the predicate, or -1
	negate bool   // runs where the predicate is false
	flow   flow
	target int // of a branch
	run    operation
	reads  []operand // for mma: where its operands come from
	writes []int
}

// A flow says which lanes execute an instruction and what runs next.
type flow int

const (
	straight flow = iota
	together      // all 32 lanes at once
	barrier       // all lanes that have not returned, and all warps
	branch
	exit
)

// An operation executes an instruction for the lanes of a mask. The instruction's counter is the warp's.
type operation func(w *warp, mask uint32) error

// An operand is a register, the registers of a vector, or an address: a register plus an offset.
type operand struct {
	registers []int
	offset    uint64
	address   bool
}

// ParameterSizes returns the sizes of the parameters in bytes.
func (k *Kernel) ParameterSizes() []int {
	sizes := make([]int, len(k.parameters))
	for i, p := range k.parameters {
		sizes[i] = p.size
	}
	return sizes
}

// A Launch says how a kernel runs.
type Launch struct {
	Grid       [3]int
	Threads    int // of a block, a multiple of 32
	Shared     int // bytes of dynamic shared memory
	Parameters [][]byte
	Memory     []Area
	Descending bool // blocks and warps run in descending order
}

// An Area is global memory. A kernel that accesses memory outside of all areas fails.
type Area struct {
	Address uint64
	Bytes   []byte
}

// Run executes all blocks, one after the other. An error of a thread names its block and the thread.
func (k *Kernel) Run(l Launch) error {
	if l.Threads <= 0 || l.Threads%32 != 0 || l.Threads > 1024 {
		return fmt.Errorf("%s: %d threads: a multiple of 32 up to 1024 is possible", k.name, l.Threads)
	}
	parameters, err := k.pack(l.Parameters)
	if err != nil {
		return err
	}
	memory := newMemory(l.Memory)
	blocks := l.Grid[0] * l.Grid[1] * l.Grid[2]
	b := block{kernel: k, launch: l, memory: memory, parameters: parameters}
	for i := range blocks {
		if l.Descending {
			i = blocks - 1 - i
		}
		b.index = [3]int{i % l.Grid[0], i / l.Grid[0] % l.Grid[1], i / l.Grid[0] / l.Grid[1]}
		if err := b.run(); err != nil {
			return fmt.Errorf("%s, block %d %d %d: %w", k.name, b.index[0], b.index[1], b.index[2], err)
		}
	}
	return nil
}

func (k *Kernel) pack(arguments [][]byte) ([]byte, error) {
	if len(arguments) != len(k.parameters) {
		return nil, fmt.Errorf("%s has %d parameters, not %d", k.name, len(k.parameters), len(arguments))
	}
	var packed []byte
	for i, p := range k.parameters {
		if len(arguments[i]) != p.size {
			return nil, fmt.Errorf("%s: parameter %d has %d bytes, not %d", k.name, i, p.size, len(arguments[i]))
		}
		packed = append(append(packed, make([]byte, p.offset-len(packed))...), arguments[i]...)
	}
	return packed, nil
}
