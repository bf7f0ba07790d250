#include "textflag.h"

// A round compares 64 counts with 0 (AVX-512) or 32 (AVX2), and looks for the
// place only where there is a 0.

// func firstZeroAVX2(p *int32, n int) int
TEXT ·firstZeroAVX2(SB), NOSPLIT, $0-24
	MOVQ  p+0(FP), SI
	MOVQ  n+8(FP), CX
	XORQ  AX, AX
	VPXOR Y0, Y0, Y0

half:
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
	JLT      half
	VZEROUPPER
	MOVQ     CX, ret+16(FP)
	RET

found:
	// One bit a count, from the sign bits of the four results.
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

// func firstZeroAVX512(p *int32, n int) int
TEXT ·firstZeroAVX512(SB), NOSPLIT, $0-24
	MOVQ   p+0(FP), SI
	MOVQ   n+8(FP), CX
	XORQ   AX, AX
	VPXORQ Z0, Z0, Z0

round:
	// The unsigned minimum of four is 0 in a lane where one of them is.
	VMOVDQU32 (SI)(AX*4), Z1
	VMOVDQU32 128(SI)(AX*4), Z3
	VPMINUD   64(SI)(AX*4), Z1, Z2
	VPMINUD   192(SI)(AX*4), Z3, Z4
	VPMINUD   Z2, Z4, Z5
	VPTESTNMD Z5, Z5, K1
	KORTESTW  K1, K1
	JNZ       place
	ADDQ      $64, AX
	CMPQ      AX, CX
	JLT       round
	VZEROUPPER
	MOVQ      CX, ret+16(FP)
	RET

place:
	VPCMPEQD  (SI)(AX*4), Z0, K1
	VPCMPEQD  64(SI)(AX*4), Z0, K2
	VPCMPEQD  128(SI)(AX*4), Z0, K3
	VPCMPEQD  192(SI)(AX*4), Z0, K4
	KMOVW     K1, R8
	KMOVW     K2, R9
	KMOVW     K3, R10
	KMOVW     K4, R11
	SHLQ      $16, R9
	SHLQ      $32, R10
	SHLQ      $48, R11
	ORQ       R9, R8
	ORQ       R11, R10
	ORQ       R10, R8
	BSFQ      R8, R8
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
