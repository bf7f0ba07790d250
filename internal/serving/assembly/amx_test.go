//go:build long

package assembly

import (
	"fmt"
	"testing"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
	"github.com/stretchr/testify/require"
)

// The bytes are those of GNU as.
func TestTileInstructionsAreEncodedAsGNUAsDoes(t *testing.T) {
	at := func(base, index reg.Register, disp int) operand.Op {
		return operand.Mem{Base: base, Index: index, Scale: 1, Disp: disp}
	}
	tile := func(n ...Tile) (operands []operand.Op) {
		for _, t := range n {
			operands = append(operands, t)
		}
		return operands
	}
	tests := []struct {
		name     string
		operands []operand.Op
		want     string
	}{
		{"LDTILECFG", []operand.Op{operand.Mem{Base: reg.RAX}}, "c4e2784900"},
		{"LDTILECFG", []operand.Op{operand.Mem{Base: reg.R12}}, "c4c278490424"},
		{"LDTILECFG", []operand.Op{operand.Mem{Base: reg.R13}}, "c4c278494500"},
		{"TILERELEASE", nil, "c4e27849c0"},
		{"TILEZERO", tile(5), "c4e27b49e8"},
		{"TILELOADD", []operand.Op{at(reg.RSI, reg.R9, 0), Tile(4)}, "c4a27b4b240e"},
		{"TILELOADD", []operand.Op{at(reg.R13, reg.RAX, 0), Tile(7)}, "c4c27b4b7c0500"},
		{"TILELOADD", []operand.Op{at(reg.RDI, reg.R14, 64), Tile(0)}, "c4a27b4b443740"},
		{"TILELOADD", []operand.Op{at(reg.R12, reg.RCX, 192), Tile(6)}, "c4c27b4bb40cc0000000"},
		{"TILESTORED", []operand.Op{Tile(3), at(reg.RBP, reg.RDX, 0)}, "c4e27a4b5c1500"},
		{"TILESTORED", []operand.Op{Tile(1), at(reg.RBX, reg.R15, -128)}, "c4a27a4b4c3b80"},
		{"TDPBSSD", tile(2, 1, 0), "c4e26b5ec1"},
		{"TDPBSSD", tile(7, 6, 5), "c4e2435eee"},
		{"TDPBF16PS", tile(6, 4, 0), "c4e24a5cc4"},
		{"TDPBF16PS", tile(0, 3, 7), "c4e27a5cfb"},
	}
	for _, test := range tests {
		e := encodeTiles(test.name, test.operands)
		require.Equal(t, test.want, fmt.Sprintf("%x", e.bytes), e.text)
	}
}
