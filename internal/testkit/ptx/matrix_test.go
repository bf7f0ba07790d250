package ptx_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that ldmatrix and mma place elements as each other and as the manual: a 16 x 16 and a 16 x 8 matrix that lie row
// by row in shared memory are loaded and multiplied.
func TestMMAOfMatricesThatLDMatrixLoads(t *testing.T) {
	const body = `
	mov.u64 %%rd2, dynamic;
	cvt.u32.u64 %%r1, %%rd2;
	// a: 16 rows of 32 bytes. Thread i < 16 clears its row but for a 1 in column (i + 3) %% 16.
	setp.ge.s32 %%p1, %%r39, 16;
	@%%p1 bra WRITTEN;
	shl.b32 %%r2, %%r39, 5;
	add.s32 %%r2, %%r1, %%r2;
	st.shared.v4.u32 [%%r2], {0, 0, 0, 0};
	st.shared.v4.u32 [%%r2+16], {0, 0, 0, 0};
	add.s32 %%r3, %%r39, 3;
	and.b32 %%r3, %%r3, 15;
	shl.b32 %%r3, %%r3, 1;
	add.s32 %%r3, %%r2, %%r3;
	mov.u16 %%rs1, 0x3c00;
	st.shared.u16 [%%r3], %%rs1;
	// b: 16 rows of 16 bytes from 512 on. Element n of row k is 8 k + n.
	shl.b32 %%r2, %%r39, 4;
	add.s32 %%r2, %%r1, %%r2;
	mov.b32 %%r4, 0;
LOOP:
	shl.b32 %%r5, %%r39, 3;
	add.s32 %%r5, %%r5, %%r4;
	cvt.rn.f32.s32 %%f1, %%r5;
	cvt.rn.f16.f32 %%rs1, %%f1;
	st.shared.u16 [%%r2+512], %%rs1;
	add.s32 %%r2, %%r2, 2;
	add.s32 %%r4, %%r4, 1;
	setp.lt.s32 %%p2, %%r4, 8;
	@%%p2 bra LOOP;
WRITTEN:
	bar.sync 0;
	// Lane i has the address of row i %% 16 of a, and of its second half from lane 16 on; and of row i %% 16 of b.
	and.b32 %%r6, %%r39, 15;
	shr.u32 %%r7, %%r39, 4;
	shl.b32 %%r8, %%r6, 5;
	shl.b32 %%r9, %%r7, 4;
	add.s32 %%r8, %%r8, %%r9;
	add.s32 %%r8, %%r8, %%r1;
	ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%%r10, %%r11, %%r12, %%r13}, [%%r8];
	shl.b32 %%r9, %%r6, 4;
	add.s32 %%r9, %%r9, %%r1;
	ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%%r14, %%r15}, [%%r9 + 512];
	mov.f32 %%f1, 0f3F800000;
	mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%%f4, %%f5, %%f6, %%f7}, {%%r10, %%r11, %%r12, %%r13}, {%%r14, %%r15}, {%%f1, %%f1, %%f1, %%f1};
	st.global.f32 [%%rd1], %%f%d;`
	for i := range 4 {
		results, _, err := run(t, 32, fmt.Sprintf(body, 4+i))
		require.NoError(t, err)
		for lane, got := range results {
			row, column := lane/4+i/2*8, lane%4*2+i%2
			require.Equal(t, float32(8*((row+3)%16)+column+1), math.Float32frombits(got), "row %d, column %d", row, column)
		}
	}
}

// Ensure that the counts of a loop with mma are those of its instructions, and that operands that are not in a row cost
// moves.
func TestCountsOfTheMainLoop(t *testing.T) {
	const loop = `
	mov.u64 %%rd2, dynamic;
	cvt.u32.u64 %%r1, %%rd2;
	shl.b32 %%r2, %%r39, %d;
	add.s32 %%r2, %%r1, %%r2;
	mov.b32 %%r3, 5;
LOOP:
	ld.shared.v4.u32 {%%r10, %%r11, %%r12, %%r13}, [%%r2];
	ld.shared.v2.u32 {%%r14, %%r15}, [dynamic];
	mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%%f4, %%f5, %%f6, %%f7}, {%s}, {%%r14, %%r15}, {%%f4, %%f5, %%f6, %%f7};
	sub.s32 %%r3, %%r3, 1;
	setp.ne.s32 %%p1, %%r3, 0;
	@%%p1 bra LOOP;
	st.global.f32 [%%rd1], %%f4;`
	for _, c := range []struct {
		name, operand string
		shift         int
		moves, turns  int
	}{
		{"in a row", "%r10, %r11, %r12, %r13", 4, 0, 0},
		{"crossed", "%r10, %r12, %r11, %r13", 4, 4, 0},
		{"computed", "%r39, %r39, %r39, %r39", 4, 0, 0},
		{"rows of 32 bytes", "%r10, %r11, %r12, %r13", 5, 0, 4}, // two lanes of eight in each bank, four times
		{"rows of 128 bytes", "%r10, %r11, %r12, %r13", 7, 0, 28},
	} {
		_, k, err := run(t, 32, fmt.Sprintf(loop, c.shift, c.operand))
		require.NoError(t, err, c.name)
		l := k.MainLoop()
		require.Equal(t, 5, l.Steps, c.name)
		require.Equal(t, []int{30, 5, 5 * c.moves, 5 * 32 * 24, 5 * c.turns}, []int{l.Instructions, l.MMA, l.Moves, l.SharedBytes, l.ExcessBankTurns}, c.name)
		require.Zero(t, l.GlobalBytes, c.name)
		require.Equal(t, 128, k.Total().GlobalBytes, c.name)
	}
}

// Ensure that rows of global memory that do not fill sectors count.
func TestSectorsOfGlobalMemory(t *testing.T) {
	for body, excess := range map[string]int{
		"st.global.u32 [%rd1], %r39;": 0,
		"and.b32 %r1, %r39, 3; mul.wide.u32 %rd2, %r1, 32; add.s64 %rd2, %rd0, %rd2; ld.global.u8 %r0, [%rd2];": 3,
		"ld.global.u32 %r0, [%rd0];": 0,
	} {
		_, k, err := run(t, 32, body)
		require.NoError(t, err)
		require.Equal(t, excess, k.Total().ExcessSectors, body)
	}
}
