package assembly

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const dotBF16 = "VDPBF16PS"

// DotBF16 emits VDPBF16PS, which adds products of pairs of BF16 to 16 sums. It adds the products of the high halves
// of x and w first, then the products of the low halves, with one rounding each. The operand x is a register, or
// one pair in memory that is used for all 16 sums.
func DotBF16(asm *build.Context, x operand.Op, w, sum reg.Register) {
	operands := []operand.Op{x, w, sum}
	asm.Instruction(&ir.Instruction{Opcode: dotBF16, Operands: operands, Inputs: operands, Outputs: operands[2:],
		ISA: []string{"AVX512F", "AVX512BF16"}})
}

// encode replaces the instructions that Go's assembler lacks by their bytes.
func encode(i *ir.Instruction) error {
	if _, ok := tileCodes[i.Opcode]; ok {
		i.Opcode, i.Operands = "BYTE", []operand.Op{encodeTiles(i.Opcode, i.Operands)}
	} else if i.Opcode == dotBF16 {
		i.Opcode, i.Operands = "BYTE", []operand.Op{encodeDot(i.Operands)}
	}
	return nil
}

// An encoded instruction is an operand of the BYTE directive.
type encoded struct {
	bytes []byte
	text  string
}

// Asm returns the text to write after the name of a BYTE directive. The text has all bytes of the instruction. Since a
// directive has only one byte, the text contains a further directive before each byte except the first. A comment with
// the instruction follows:
//
//	$0x62; BYTE $0xf2; BYTE $0x76 ... // VDPBF16PS Z0, Z1, Z2
func (e encoded) Asm() string {
	var all []string
	for _, b := range e.bytes {
		all = append(all, fmt.Sprintf("$0x%02x", b))
	}
	return strings.Join(all, "; BYTE ") + " // " + e.text
}

// encodeDot encodes EVEX.512.F3.0F38.W0 52 /r, with x in the field r/m, w in vvvv and sum in reg.
func encodeDot(operands []operand.Op) encoded {
	w, sum := number(operands[1]), number(operands[2])
	// The EVEX prefix stores the bits of register numbers inverted. Clearing a bit of the prefix therefore sets a bit
	// of a register number. Its broadcast bit is not inverted.
	prefix := []byte{0x62, 0xf2, 0x7e, 0x48}
	clear := func(i int, bit, value byte) { prefix[i] &^= value << bit }
	clear(1, 7, sum>>3&1)
	clear(1, 4, sum>>4)
	clear(2, 3, w&15)
	clear(3, 3, w>>4)
	names := make([]string, len(operands))
	for i, o := range operands {
		names[i] = o.Asm()
	}
	e := encoded{text: dotBF16 + " " + strings.Join(names, ", ")}
	m, ok := operands[0].(operand.Mem)
	if !ok {
		x := number(operands[0])
		clear(1, 5, x>>3&1)
		clear(1, 6, x>>4)
		e.bytes = append(prefix, 0x52, 0xc0|sum&7<<3|x&7)
		return e
	}
	prefix[3] |= 1 << 4
	base := number(m.Base)
	clear(1, 5, base>>3)
	if m.Index == nil && base&7 != 4 {
		e.bytes = append(prefix, 0x52, sum&7<<3|base&7)
	} else {
		index, scale := byte(4), byte(0) // no index
		if m.Index != nil {
			index, scale = number(m.Index), byte(bits.TrailingZeros8(m.Scale))
			clear(1, 6, index>>3)
		}
		e.bytes = append(prefix, 0x52, sum&7<<3|4, scale<<6|index&7<<3|base&7)
	}
	if d := m.Disp / 4; m.Disp%4 == 0 && d >= -128 && d < 128 { // a displacement of 1 byte is in units of 4 bytes
		e.bytes[5] |= 0x40
		e.bytes = append(e.bytes, byte(d))
	} else {
		e.bytes[5] |= 0x80
		e.bytes = binary.LittleEndian.AppendUint32(e.bytes, uint32(m.Disp))
	}
	return e
}

func number(o operand.Op) byte { return byte(reg.ToPhysical(o.(reg.Register)).PhysicalIndex()) }
