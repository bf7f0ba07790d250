package ptx_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/ptx"
)

const address = 0x1000

// compile makes a kernel of a body. %rd1 is the address of memory for the results, of 4 bytes a thread.
func compile(t *testing.T, body string) (*ptx.Kernel, error) {
	t.Helper()
	return ptx.Compile(`.version 7.4
.extern .shared .align 16 .b8 dynamic[];
.visible .entry test(
	.param .u64 out
)
{
	.reg .pred %p<9>;
	.reg .b16 %rs<9>;
	.reg .b32 %r<40>;
	.reg .f32 %f<40>;
	.reg .b64 %rd<9>;
	ld.param.u64 %rd0, [out];
	mov.u32 %r39, %tid.x;
	mul.wide.u32 %rd1, %r39, 4;
	add.s64 %rd1, %rd0, %rd1;
`+body+`
	ret;
}
`, "test")
}

// run runs a body in a block of so many threads and returns their results.
func run(t *testing.T, threads int, body string) ([]uint32, *ptx.Kernel, error) {
	t.Helper()
	k, err := compile(t, body)
	require.NoError(t, err)
	memory := make([]byte, 4*threads)
	err = k.Run(ptx.Launch{Grid: [3]int{1, 1, 1}, Threads: threads, Shared: 4096, Memory: []ptx.Area{{Address: address, Bytes: memory}},
		Parameters: [][]byte{binary.LittleEndian.AppendUint64(nil, address)}})
	var results []uint32
	for ; len(memory) > 0; memory = memory[4:] {
		results = append(results, binary.LittleEndian.Uint32(memory))
	}
	return results, k, err
}

// Ensure that instructions compute what the PTX manual says, where a register, a sign or a rounding could go wrong.
func TestInstructions(t *testing.T) {
	for _, c := range []struct {
		body string // puts the result in %r0
		want uint32
	}{
		{"mov.b32 %r1, -7; shr.s32 %r0, %r1, 1", 0xfffffffc},
		{"mov.b32 %r1, -7; shr.u32 %r0, %r1, 31", 1},
		{"mov.b32 %r1, 1; shl.b32 %r0, %r1, 32", 0},
		{"mov.b32 %r1, -8; shr.s32 %r0, %r1, 77", 0xffffffff},
		{"mov.b32 %r1, -7; div.s32 %r0, %r1, 2", 0xfffffffd},
		{"mov.b32 %r1, -7; rem.s32 %r0, %r1, 2", 0xffffffff},
		{"mov.b32 %r1, -7; div.u32 %r0, %r1, 2", 0x7ffffffc},
		{"mov.b32 %r1, -7; mul.hi.u32 %r0, %r1, 3", 2},
		{"mov.b32 %r1, -7; mul.hi.s32 %r0, %r1, 3", 0xffffffff},
		{"mov.b32 %r1, -7; mul.wide.s32 %rd2, %r1, 3; shr.u64 %rd2, %rd2, 32; cvt.u32.u64 %r0, %rd2", 0xffffffff},
		{"mov.b32 %r1, -7; mul.wide.u32 %rd2, %r1, 3; shr.u64 %rd2, %rd2, 32; cvt.u32.u64 %r0, %rd2", 2},
		{"mov.b32 %r1, -7; cvt.s64.s32 %rd2, %r1; neg.s64 %rd2, %rd2; cvt.u32.u64 %r0, %rd2", 7},
		{"mov.b64 %rd2, -7; mul.hi.u64 %rd2, %rd2, 3; cvt.u32.u64 %r0, %rd2", 2},
		{"mov.b64 %rd2, -7; mul.hi.s64 %rd2, %rd2, 3; cvt.u32.u64 %r0, %rd2", 0xffffffff},
		{"mov.b32 %r1, 5; mad.lo.s32 %r0, %r1, -3, 16", 1},
		{"mov.b32 %r1, 0xabcd1234; bfe.u32 %r0, %r1, 12, 8", 0xd1},
		{"mov.b32 %r1, 0x33221100; mov.b32 %r2, 0x77665584; prmt.b32 %r0, %r1, %r2, 0x3ac4", 0x3300ff84},
		{"mov.b32 %r1, 3; mov.b32 %r2, -1; setp.lt.s32 %p1, %r1, %r2; selp.b32 %r0, 1, 2, %p1", 2},
		{"mov.b32 %r1, 3; mov.b32 %r2, -1; setp.lt.u32 %p1, %r1, %r2; selp.b32 %r0, 1, 2, %p1", 1},
		{"mov.b32 %r1, 3; min.s32 %r0, %r1, -1", 0xffffffff},
		{"mov.b32 %r1, 3; min.u32 %r0, %r1, -1", 3},
		{"mov.u16 %rs1, 0xfff0; shr.u16 %rs1, %rs1, 4; add.s16 %rs1, %rs1, 0x7001; cvt.u32.u16 %r0, %rs1", 0x8000},
		{"mov.b32 %r1, 0x12345678; { .reg .b16 t; mov.b32 {t, %rs1}, %r1; } cvt.u32.u16 %r0, %rs1", 0x1234},
		{"mov.u16 %rs1, 1; mov.u16 %rs2, 2; mov.b32 %r0, {%rs1, %rs2}", 0x20001},
		{"mov.pred %p1, -1; @!%p1 mov.b32 %r0, 1; @%p1 mov.b32 %r0, 2", 2},
		// A product a little less than half of the last bit of an odd number. Rounded twice, the sum is the next number.
		{"mov.f32 %f1, 0f39800001; fma.rn.f32 %f0, %f1, 0f397FFFFE, 0f3F800001; mov.b32 %r0, %f0", 0x3f800001},
		{"mov.f32 %f1, 0fB9800001; fma.rn.f32 %f0, %f1, 0f397FFFFE, 0fBF800001; mov.b32 %r0, %f0", 0xbf800001},
		{"mov.f32 %f1, 0f7FC00001; add.rn.f32 %f0, %f1, 0f3F800000; mov.b32 %r0, %f0", 0x7fffffff},
		{"mov.f32 %f1, 0f7FC00001; max.f32 %f0, %f1, 0f3F800000; mov.b32 %r0, %f0", 0x3f800000},
		{"mov.f32 %f1, 0f80000000; max.f32 %f0, %f1, 0f00000000; mov.b32 %r0, %f0", 0},
		{"mov.f32 %f1, 0f00000000; min.f32 %f0, %f1, 0f80000000; mov.b32 %r0, %f0", 0x80000000},
		{"mov.f32 %f1, 0f7FC00001; setp.neu.f32 %p1, %f1, %f1; selp.u32 %r0, 1, 0, %p1", 1},
		{"mov.f32 %f1, 0f7FC00001; setp.ne.f32 %p1, %f1, %f1; selp.u32 %r0, 1, 0, %p1", 0},
		{"mov.f32 %f1, 0f7FC00001; setp.num.f32 %p1, %f1, %f1; selp.u32 %r0, 1, 0, %p1", 0},
		{"mov.f32 %f1, 0fC2FE0000; ex2.approx.ftz.f32 %f0, %f1; mov.b32 %r0, %f0", 0},
		{"mov.f32 %f1, 0fC2FC0000; ex2.approx.ftz.f32 %f0, %f1; mov.b32 %r0, %f0", 0x00800000},
		{"mov.f32 %f1, 0f477FF000; cvt.rn.f16.f32 %rs1, %f1; cvt.u32.u16 %r0, %rs1", 0x7c00},
		{"mov.f32 %f1, 0f33000001; cvt.rn.f16.f32 %rs1, %f1; cvt.u32.u16 %r0, %rs1", 1},
		{"mov.f32 %f1, 0f3F808000; cvt.rn.bf16.f32 %rs1, %f1; cvt.u32.u16 %r0, %rs1", 0x3f80},
		{"mov.f32 %f1, 0f3F800000; cvt.rn.f16x2.f32 %r0, %f1, 0fC0000000", 0x3c00c000},
		{"mov.f32 %f1, 0f4A800003; cvt.rzi.u64.f32 %rd2, %f1; mul.lo.s64 %rd2, %rd2, 1024; shr.u64 %rd2, %rd2, 8; cvt.u32.u64 %r0, %rd2", 0x1000004},
		{"mov.b32 %r1, -5; cvt.rn.f32.s32 %f1, %r1; mov.b32 %r0, %f1", 0xc0a00000},
		{"mov.u64 %rd2, dynamic; cvta.shared.u64 %rd2, %rd2; st.u8 [%rd2+3], 0x81; ld.shared.u8 %r0, [dynamic+3]", 0x81},
		{"st.shared.v2.u32 [dynamic+8], {1, 2}; ld.shared.u32 %r0, [dynamic+12]", 2},
		{"ld.shared.u32 %r0, [dynamic]", 0xffffffff},
		{"atom.add.u32 %r1, [%rd1], 5; atom.add.u32 %r0, [%rd1], 1; add.s32 %r0, %r0, %r1", 5},
	} {
		t.Run(c.body, func(t *testing.T) {
			results, _, err := run(t, 32, strings.TrimSuffix(c.body, "; ")+";\n st.global.u32 [%rd1], %r0;")
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("%#x", c.want), fmt.Sprintf("%#x", results[7]))
		})
	}
}

// Ensure that fma rounds once, by comparing with exact sums.
func TestFMARoundsOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(exponents int) float32 {
		return float32(math.Ldexp(float64(rng.Uint32()>>8|1<<23), rng.IntN(exponents)-exponents/2-23)) * float32(1-2*rng.IntN(2))
	}
	for range 300 {
		exponents := []int{4, 60, 160}[rng.IntN(3)]
		x, y, z := random(exponents), random(exponents), random(exponents)
		if rng.IntN(2) == 0 { // the sum is near the middle between two numbers
			z = float32(math.Ldexp(float64(x)*float64(y), 25*(2*rng.IntN(2)-1)))
		}
		exact := new(big.Float).SetPrec(2000).SetFloat64(float64(x) * float64(y))
		want, _ := exact.Add(exact, new(big.Float).SetFloat64(float64(z))).Float32()
		results, _, err := run(t, 32, fmt.Sprintf("mov.f32 %%f1, 0f%08X; fma.rn.f32 %%f0, %%f1, 0f%08X, 0f%08X; st.global.f32 [%%rd1], %%f0;",
			math.Float32bits(x), math.Float32bits(y), math.Float32bits(z)))
		require.NoError(t, err)
		require.Equal(t, want, math.Float32frombits(results[0]), "%v * %v + %v", x, y, z)
	}
}

// Ensure that lanes that branch apart compute what each would alone, meet again, and come to barriers together.
func TestLanesThatBranch(t *testing.T) {
	results, k, err := run(t, 64, `
	mov.b32 %r0, 0;
	mov.b32 %r1, %r39;
LOOP:
	add.s32 %r0, %r0, %r1;
	setp.eq.s32 %p1, %r1, 0;
	@%p1 bra OUT;
	sub.s32 %r1, %r1, 1;
	bra.uni LOOP;
OUT:
	bar.sync 0;
	shfl.sync.bfly.b32 %r2, %r0, 1, 31, 0xffffffff;
	setp.lt.s32 %p2, %r39, 40;
	@%p2 bra LESS;
	add.s32 %r2, %r2, 1000;
LESS:
	st.global.u32 [%rd1], %r2;`)
	require.NoError(t, err)
	for i, got := range results {
		n := uint32(i ^ 1)
		require.Equal(t, n*(n+1)/2+1000*uint32(1-min(1, max(0, 40-i))), got, "thread %d", i)
	}
	require.Zero(t, k.MainLoop().Steps, "a loop without mma")
}

// Ensure that lanes that have branched meet those that go on after others have returned.
func TestLanesMeetAfterOthersReturned(t *testing.T) {
	results, _, err := run(t, 32, `
	setp.lt.s32 %p1, %r39, 8;
	setp.lt.s32 %p2, %r39, 16;
	@%p1 bra BARRIER;
	@%p2 ret;
BARRIER:
	bar.sync 0;
	st.global.u32 [%rd1], 1;`)
	require.NoError(t, err)
	for i, got := range results {
		require.Equal(t, i < 8 || i >= 16, got == 1, "thread %d", i)
	}
}

// Ensure that shuffles take the register of the lane that the manual says.
func TestShuffles(t *testing.T) {
	for operation, want := range map[string]func(lane int) int{
		"bfly.b32 %r0, %r39, 5, 31": func(lane int) int { return lane ^ 5 },
		"idx.b32 %r0, %r39, 37, 31": func(int) int { return 5 },
		"down.b32 %r0, %r39, 4, 31": func(lane int) int {
			if lane >= 28 {
				return lane
			}
			return lane + 4
		},
		"up.b32 %r0, %r39, 4, 0": func(lane int) int { return lane - 4*min(1, lane/4) },
		"bfly.b32 %r0, %r39, 9, 0x181f": func(lane int) int { // in segments of 8 lanes
			if lane^9 > lane|7 {
				return lane
			}
			return lane ^ 9
		},
	} {
		results, _, err := run(t, 32, "shfl.sync."+operation+", 0xffffffff; st.global.u32 [%rd1], %r0;")
		require.NoError(t, err)
		for lane, got := range results {
			require.Equal(t, uint32(want(lane)), got, "%s, lane %d", operation, lane)
		}
	}
}

// Ensure that a mistake of a kernel is an error that names the thread and the mistake.
func TestMistakesAreErrors(t *testing.T) {
	for _, c := range []struct{ name, body, says string }{
		{"memory outside", "ld.global.u32 %r0, [%rd1+4];", "thread 31 accesses 4 bytes at 0x1080, outside of memory"},
		{"memory before", "ld.global.u32 %r0, [%rd1+-4];", "thread 0 accesses 4 bytes at 0xffc, outside of memory"},
		{"shared memory outside", "ld.shared.u32 %r0, [dynamic+4096];", "thread 0 accesses 4 bytes at 0x1000, outside of memory"},
		{"a misaligned vector", "ld.global.v2.u32 {%r0, %r1}, [%rd1];", "thread 1: the address 0x1004 is not a multiple of 8"},
		{"a shuffle of some lanes", "setp.lt.s32 %p1, %r39, 8; @%p1 bra A; shfl.sync.idx.b32 %r0, %r39, 1, 31, 0xffffffff;\nA:", "24 of 32 lanes have come, the others have returned or wait elsewhere"},
		{"lanes that returned before mma", "setp.lt.s32 %p1, %r39, 8; @%p1 ret; bar.warp.sync 0xffffffff;", "thread 8 waits in bar.warp.sync"},
		{"a copy without a wait", "cp.async.cg.shared.global.L2::128B [dynamic], [%rd0], 16, 16; cp.async.commit_group;", "thread 0 returns without waiting for its cp.async"},
		{"a copy of too much", "mov.b32 %r0, 17; cp.async.cg.shared.global.L2::128B [dynamic], [%rd0], 16, %r0;", "thread 0 copies 17 bytes of 16"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := run(t, 32, c.body)
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, "test, block 0 0 0: ")
		})
	}
	for text, says := range map[string]string{
		"mul.f32 %f0, %f1, %f2;":        "the interpreter does not know mul.f32 with 3 operands: without .rn, NVIDIA's assembler may make an fma of it",
		"add.s32 %r0, %r99, 1;":         "there is no register %r99",
		"bra NOWHERE;":                  "there is no label NOWHERE",
		"wgmma.fence.sync.aligned;":     "the interpreter does not know wgmma.fence.sync.aligned",
		"bar.sync 1;":                   "the interpreter does not know bar.sync",
		"ld.local.u32 %r0, [%rd0];":     "the interpreter does not know ld.local.u32",
		".local .align 4 .b8 depot[4];": "local memory is slow: the interpreter refuses it",
		"cp.async.cg.shared.global.L2::128B [dynamic], [%rd0], 8, 8;": "the interpreter does not know cp.async.cg.shared.global.L2::128B with 4 operands",
	} {
		_, err := compile(t, text)
		require.ErrorContains(t, err, says)
	}
}

// Ensure that a copy arrives when the thread waits for its group, not before, and that what it does not fill is 0.
func TestCopiesArriveWhenTheThreadWaits(t *testing.T) {
	results, _, err := run(t, 32, `
	mov.b32 %r1, 9;
	st.global.u32 [%rd1], %r1;
	setp.ne.s32 %p1, %r39, 0;
	@%p1 bra END;
	cp.async.cg.shared.global.L2::128B [dynamic], [%rd0], 16, 4;
	cp.async.commit_group;
	cp.async.cg.shared.global.L2::128B [dynamic+16], [%rd0], 16, 16;
	cp.async.commit_group;
	ld.shared.u32 %r2, [dynamic];
	cp.async.wait_group 1;
	ld.shared.u32 %r3, [dynamic];
	ld.shared.u32 %r4, [dynamic+4];
	ld.shared.u32 %r5, [dynamic+16];
	cp.async.wait_group 0;
	ld.shared.u32 %r6, [dynamic+28];
	st.global.v4.u32 [%rd0], {%r2, %r3, %r4, %r5};
	st.global.u32 [%rd0+16], %r6;
END:`)
	require.NoError(t, err)
	require.Equal(t, []uint32{0xffffffff, 9, 0, 0xffffffff, 9}, results[:5])
}
