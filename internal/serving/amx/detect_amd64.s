//go:build amd64 && !purego

#include "textflag.h"

// Go's assembler has no tile instructions. Their bytes are those of GNU as.
#define LDTILECFG_AX BYTE $0xc4; BYTE $0xe2; BYTE $0x78; BYTE $0x49; BYTE $0x00
#define TILERELEASE BYTE $0xc4; BYTE $0xe2; BYTE $0x78; BYTE $0x49; BYTE $0xc0
#define TILELOADD_DX_R9_T0 BYTE $0xc4; BYTE $0xa2; BYTE $0x7b; BYTE $0x4b; BYTE $0x04; BYTE $0x0a
#define TILELOADD_SI_R9_T1 BYTE $0xc4; BYTE $0xa2; BYTE $0x7b; BYTE $0x4b; BYTE $0x0c; BYTE $0x0e
#define TILELOADD_DI_R9_T2 BYTE $0xc4; BYTE $0xa2; BYTE $0x7b; BYTE $0x4b; BYTE $0x14; BYTE $0x0f
#define TILESTORED_T0_DX_R9 BYTE $0xc4; BYTE $0xa2; BYTE $0x7a; BYTE $0x4b; BYTE $0x04; BYTE $0x0a
#define TDPBSSD_T2_T1_T0 BYTE $0xc4; BYTE $0xe2; BYTE $0x6b; BYTE $0x5e; BYTE $0xc1
#define TDPBF16PS_T2_T1_T0 BYTE $0xc4; BYTE $0xe2; BYTE $0x6a; BYTE $0x5c; BYTE $0xc1

// LOAD configures the tiles and loads c, a and b into tiles 0, 1 and 2. Rows are 64 bytes apart.
#define LOAD \
	MOVQ config+0(FP), AX; \
	MOVQ c+8(FP), DX; \
	MOVQ a+16(FP), SI; \
	MOVQ b+24(FP), DI; \
	MOVQ $64, R9; \
	LDTILECFG_AX; \
	TILELOADD_DX_R9_T0; \
	TILELOADD_SI_R9_T1; \
	TILELOADD_DI_R9_T2

// func multiplyInt8(config *Config, c, a, b *Tile)
TEXT ·multiplyInt8(SB), NOSPLIT, $0-32
	LOAD
	TDPBSSD_T2_T1_T0
	TILESTORED_T0_DX_R9
	TILERELEASE
	RET

// func multiplyBF16(config *Config, c, a, b *Tile)
TEXT ·multiplyBF16(SB), NOSPLIT, $0-32
	LOAD
	TDPBF16PS_T2_T1_T0
	TILESTORED_T0_DX_R9
	TILERELEASE
	RET

// func xcr0() uint64
TEXT ·xcr0(SB), NOSPLIT, $0-8
	XORL CX, CX
	XGETBV
	SHLQ $32, DX
	ORQ  DX, AX
	MOVQ AX, ret+0(FP)
	RET
