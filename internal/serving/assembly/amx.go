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

// A Tile is the number of a tile register of AMX. The package avo does not know these registers; it takes them for
// constants.
type Tile = operand.U8

// A tileCode is how an instruction of AMX is encoded: VEX.128.pp.0F38.W0 opcode.
type tileCode struct{ pp, opcode byte }

var tileCodes = map[string]tileCode{
	"LDTILECFG": {0, 0x49}, "TILERELEASE": {0, 0x49}, "TILEZERO": {3, 0x49}, "TILELOADD": {3, 0x4b},
	"TILESTORED": {2, 0x4b}, "TDPBSSD": {3, 0x5e}, "TDPBF16PS": {2, 0x5c},
}

func tileInstruction(asm *build.Context, opcode string, operands ...operand.Op) {
	asm.Instruction(&ir.Instruction{Opcode: opcode, Operands: operands, Inputs: operands, ISA: []string{"AMX"}})
}

// LoadTileConfig emits LDTILECFG. The 64 bytes at config say how large each tile is.
func LoadTileConfig(asm *build.Context, config reg.Register) {
	tileInstruction(asm, "LDTILECFG", operand.Mem{Base: config})
}

// ReleaseTiles emits TILERELEASE. A routine that has configured tiles releases them before it returns: otherwise Linux
// would save 8 KB more at each signal and at each change of threads.
func ReleaseTiles(asm *build.Context) { tileInstruction(asm, "TILERELEASE") }

// ZeroTile emits TILEZERO.
func ZeroTile(asm *build.Context, t Tile) { tileInstruction(asm, "TILEZERO", t) }

// LoadTile emits TILELOADD. Row i of the tile is at m + i × stride.
func LoadTile(asm *build.Context, m operand.Mem, stride reg.Register, t Tile) {
	m.Index, m.Scale = stride, 1
	tileInstruction(asm, "TILELOADD", m, t)
}

// StoreTile emits TILESTORED. It stores row i of the tile at m + i × stride.
func StoreTile(asm *build.Context, t Tile, m operand.Mem, stride reg.Register) {
	m.Index, m.Scale = stride, 1
	tileInstruction(asm, "TILESTORED", t, m)
}

// MultiplyTilesInt8 emits TDPBSSD, which adds the product of a and b to c.
func MultiplyTilesInt8(asm *build.Context, b, a, c Tile) { tileInstruction(asm, "TDPBSSD", b, a, c) }

// MultiplyTilesBF16 emits TDPBF16PS, which adds the product of a and b to c.
func MultiplyTilesBF16(asm *build.Context, b, a, c Tile) {
	tileInstruction(asm, "TDPBF16PS", b, a, c)
}

// encodeTiles encodes an instruction of AMX.
func encodeTiles(name string, operands []operand.Op) encoded {
	code := tileCodes[name]
	var names []string
	var tiles []byte
	var memory *operand.Mem
	for _, o := range operands {
		switch o := o.(type) {
		case Tile:
			tiles = append(tiles, byte(o))
			names = append(names, fmt.Sprintf("TMM%d", byte(o)))
		case operand.Mem:
			memory = &o
			names = append(names, o.Asm())
		}
	}
	// The prefix stores the bits of register numbers inverted.
	prefix := []byte{0xc4, 0xe2, 0x78 | code.pp}
	e := encoded{text: strings.TrimSpace(name + " " + strings.Join(names, ", "))}
	switch {
	case memory != nil:
		field := byte(0)
		if len(tiles) > 0 {
			field = tiles[0]
		}
		operandBytes := memoryOperand(prefix, memory, field)
		e.bytes = append(append(prefix, code.opcode), operandBytes...)
	case len(tiles) == 3:
		prefix[2] &^= tiles[0] << 3
		e.bytes = append(prefix, code.opcode, 0xc0|tiles[2]<<3|tiles[1])
	case len(tiles) == 1:
		e.bytes = append(prefix, code.opcode, 0xc0|tiles[0]<<3)
	default:
		e.bytes = append(prefix, code.opcode, 0xc0)
	}
	return e
}

// memoryOperand returns the bytes after the opcode of an instruction with a VEX prefix whose operand is m. It sets the
// bits of the prefix that extend the numbers of registers. field is the number of the other register.
func memoryOperand(prefix []byte, m *operand.Mem, field byte) []byte {
	base := number(m.Base)
	prefix[1] &^= base >> 3 << 5
	var out []byte
	if m.Index == nil && base&7 != 4 {
		out = []byte{field<<3 | base&7}
	} else {
		index, scale := byte(4), byte(0) // no index
		if m.Index != nil {
			index, scale = number(m.Index), byte(bits.TrailingZeros8(m.Scale))
			prefix[1] &^= index >> 3 << 6
		}
		out = []byte{field<<3 | 4, scale<<6 | index&7<<3 | base&7}
	}
	switch {
	case m.Disp == 0 && base&7 != 5:
	case m.Disp >= -128 && m.Disp < 128:
		out[0] |= 0x40
		out = append(out, byte(m.Disp))
	default:
		out[0] |= 0x80
		out = binary.LittleEndian.AppendUint32(out, uint32(m.Disp))
	}
	return out
}
