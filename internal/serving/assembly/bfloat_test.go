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
func TestDotBF16IsEncodedAsGNUAsDoes(t *testing.T) {
	tests := []struct {
		x      operand.Op
		w, sum reg.Register
		want   string
	}{
		{reg.Z12, reg.Z13, reg.Z0, "62d2164852c4"},
		{reg.Z28, reg.Z30, reg.Z17, "62820e4052cc"},
		{operand.Mem{Base: reg.RAX, Disp: 4}, reg.Z31, reg.Z9, "62720650524801"},
		{operand.Mem{Base: reg.R12, Disp: 92}, reg.Z2, reg.Z24, "62426e5852442417"},
		{operand.Mem{Base: reg.R13, Index: reg.R9, Scale: 4}, reg.Z3, reg.Z15, "62126658527c8d00"},
		{operand.Mem{Base: reg.RBX, Index: reg.RSI, Scale: 1, Disp: 512}, reg.Z18, reg.Z31, "62626e5052bc3300020000"},
		{operand.Mem{Base: reg.RDI, Disp: 2}, reg.Z0, reg.Z1, "62f27e58528f02000000"},
	}
	for _, test := range tests {
		e := encodeDot([]operand.Op{test.x, test.w, test.sum})
		require.Equal(t, test.want, fmt.Sprintf("%x", e.bytes), e.text)
	}
}
