#include "textflag.h"

// func firstZeroAVX2(p *int32, n int) int
//
// A round compares 32 counts with 0 and tests the four results at once; only
// the round that holds a 0 looks for its place.
TEXT ·firstZeroAVX2(SB), NOSPLIT, $0-24
	MOVQ  p+0(FP), SI
	MOVQ  n+8(FP), CX
	XORQ  AX, AX
	VPXOR Y0, Y0, Y0

round:
	VPCMPEQD (SI)(AX*4), Y0, Y1
	VPCMPEQD 32(SI)(AX*4), Y0, Y2
	VPCMPEQD 64(SI)(AX*4), Y0, Y3
	VPCMPEQD 96(SI)(AX*4), Y0, Y4
	VPOR     Y1, Y2, Y5
	VPOR     Y3, Y4, Y6
	VPOR     Y5, Y6, Y7
	VPTEST   Y7, Y7
	JNZ      found
	ADDQ     $32, AX
	CMPQ     AX, CX
	JLT      round
	VZEROUPPER
	MOVQ     CX, ret+16(FP)
	RET

found:
	// One bit a count: two 16-bit halves from the packed comparison results.
	VMOVMSKPS Y1, R8
	VMOVMSKPS Y2, R9
	VMOVMSKPS Y3, R10
	VMOVMSKPS Y4, R11
	SHLL      $8, R9
	SHLL      $16, R10
	SHLL      $24, R11
	ORL       R9, R8
	ORL       R11, R10
	ORL       R10, R8
	BSFL      R8, R8
	ADDQ      R8, AX
	VZEROUPPER
	MOVQ      AX, ret+16(FP)
	RET

// func cpuid(leaf, subleaf uint32) (eax, ebx, ecx, edx uint32)
TEXT ·cpuid(SB), NOSPLIT, $0-24
	MOVL leaf+0(FP), AX
	MOVL subleaf+4(FP), CX
	CPUID
	MOVL AX, eax+8(FP)
	MOVL BX, ebx+12(FP)
	MOVL CX, ecx+16(FP)
	MOVL DX, edx+20(FP)
	RET

// func xgetbv() (eax, edx uint32)
TEXT ·xgetbv(SB), NOSPLIT, $0-8
	XORL CX, CX
	XGETBV
	MOVL AX, eax+0(FP)
	MOVL DX, edx+4(FP)
	RET
