// Weights in the order in which mma takes them: packed once, then read 16 bytes a lane, contiguous for a warp.
//
// Weights are the 16-row operand of mma. A packed matrix is [tile of 16 outputs][slab of 128 columns]. Of 32 columns a
// lane has 8 in a row of output lane / 4, from 8 * (lane % 4) on, and the same of output lane / 4 + 8. These are two
// mma: elements 0 to 3, then 4 to 7. Outputs are padded to 128, columns to 128, with zeros. An operand that is loaded
// with one instruction is in four consecutive registers, as mma needs it; otherwise the GPU would copy it first.
//
// The formats of GGUF are unpacked in registers: an integer is put into the fraction of a float32, whose exponent makes
// it a whole number, and a fused multiply-add applies scale and minimum. The weight is then rounded to the type of the
// activations; what float32 rounds before is far less.
#pragma once
#include "tile.h"

const int SLAB = 128, OUTPUTS = 128; // columns of a slab; outputs are padded to a multiple

DEVICE float half_at(u32 pair, int upper) { return half_to_float({(u16)(upper ? pair >> 16 : pair)}); }
DEVICE u32 word_of(const bytes16 &x, int i) { return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w; }

// An integer of BITS bits in the upper bits of a fraction, with the right exponent, is 2^BITS more than the integer.
template <int BITS> DEVICE float whole(u32 fraction) { return float_of((127 + BITS) << 23 | fraction); }
// nibble returns 4 bits of a word, shifted to where an integer of BITS bits begins in a fraction: number p, or p + 4 if
// upper. A word has the integers of an mma: number p is the lower element of register p, number p + 4 the upper one.
template <int BITS> DEVICE u32 nibble(u32 word, int p, int upper) {
  const int at = 23 - BITS, by = at - 4 * p - (upper ? 16 : 0);
  return (by >= 0 ? word << by : word >> -by) & 15u << at;
}

// A type of weights has
//	BYTES    of a tile and slab
//	STAGES   how many slabs are in shared memory or on their way there when few rows are multiplied
//	Raw      what a lane has of a slab
//	read     reads Raw from a slab in shared memory
//	values   computes the two weights of register p of mma i of a slab (0 to 7)
// Registers 0 and 2 are output lane / 4, registers 1 and 3 the one 8 below.

struct Q8_0 { // 32 integers of 8 bits, which are stored plus 128, and a scale
  static const int BYTES = 4 * 512 + 128, STAGES = 4;
  struct Raw { bytes16 q[4], scales; };
  DEVICE void read(Raw &raw, u32 slab) {
    UNROLL
    for (int i = 0; i < 4; i++) raw.q[i] = load16_shared(slab + lane() * 16, i * 512);
    raw.scales = load16_shared(slab + lane() / 4 * 16, 2048);
  }
  DEVICE void values(const Raw &raw, int i, int p, float &low, float &high) {
    u32 word = word_of(raw.q[i / 2], p % 2 * 2 + i % 2) >> p / 2 * 16;
    float d = half_at(word_of(raw.scales, p % 2 * 2 + i / 4), i / 2 % 2);
    low = mul_rn(d, add_rn(float_of(0x4b000000 | (word & 255)), -8388736));
    high = mul_rn(d, add_rn(float_of(0x4b000000 | (word >> 8 & 255)), -8388736));
  }
};

struct Q4_0 { // 32 integers of 4 bits less 8, and a scale
  static const int BYTES = 2 * 512 + 128, STAGES = 6;
  struct Raw { bytes16 q[2], scales; };
  DEVICE void read(Raw &raw, u32 slab) {
    raw.q[0] = load16_shared(slab + lane() * 16, 0), raw.q[1] = load16_shared(slab + lane() * 16, 512);
    raw.scales = load16_shared(slab + lane() / 4 * 16, 1024);
  }
  DEVICE void values(const Raw &raw, int i, int p, float &low, float &high) {
    u32 word = word_of(raw.q[i / 4], i % 4);
    float d = half_at(word_of(raw.scales, p % 2 * 2 + i / 4), i / 2 % 2), offset = mul_rn(d, -24);
    low = fma_rn(d, whole<4>(nibble<4>(word, p, 0)), offset), high = fma_rn(d, whole<4>(nibble<4>(word, p, 1)), offset);
  }
};

struct MXFP4 { // 32 numbers of 4 bits (E2M1) and a power of 2 (E8M0)
  static const int BYTES = 2 * 512 + 64, STAGES = 6;
  struct Raw { bytes16 q[2]; bytes8 scales; };
  DEVICE void read(Raw &raw, u32 slab) {
    raw.q[0] = load16_shared(slab + lane() * 16, 0), raw.q[1] = load16_shared(slab + lane() * 16, 512);
    raw.scales = load8_shared(slab + lane() / 4 * 8, 1024);
  }
  // number makes the exponent and the fraction of a float32 of those of the 4 bits, which are at bit 22. Their bias is
  // 1, not 127.
  DEVICE float number(u32 at22) { return mul_rn(float_of((at22 & 0x01c00000) | (at22 & 0x02000000) << 6), 0x1p126f); }
  DEVICE void values(const Raw &raw, int i, int p, float &low, float &high) {
    u32 word = word_of(raw.q[i / 4], i % 4), exponent = (p % 2 ? raw.scales.y : raw.scales.x) >> i / 2 * 8 & 255;
    float d = float_of(exponent ? exponent << 23 : 0x00400000);
    low = mul_rn(d, number(word << (22 - 4 * p)));
    high = mul_rn(d, number(p < 2 ? word << (6 - 4 * p) : word >> (4 * p - 6)));
  }
};

struct K { // what Q4_K and Q5_K have of two outputs: four integers for scales and four for minima each, and the factors
           // of both
  bytes16 integers;
  bytes8 factors; // of scales, then of minima
  DEVICE void read(K &k, u32 slab, int offset) {
    k.integers = load16_shared(slab + lane() / 4 * 16, offset),
    k.factors = load8_shared(slab + lane() / 4 * 8, offset + 128);
  }
  DEVICE float byte(u32 word, int i) { return add_rn(whole<6>((word >> 8 * i & 63) << 17), -64); }
  // affine returns a and b of weight = a * whole<BITS>(integer) + b.
  template <int BITS> DEVICE void affine(const K &k, int i, int p, float &a, float &b) {
    u32 d = p % 2 ? k.factors.y : k.factors.x;
    a = mul_rn(half_at(d, 0), byte(word_of(k.integers, p % 2 * 2), i / 2));
    b = fma_rn(-(1 << BITS), a, -mul_rn(half_at(d, 1), byte(word_of(k.integers, p % 2 * 2 + 1), i / 2)));
  }
};

struct Q4_K {
  static const int BYTES = 2 * 512 + 192, STAGES = 6;
  struct Raw { bytes16 q[2]; K k; };
  DEVICE void read(Raw &raw, u32 slab) {
    raw.q[0] = load16_shared(slab + lane() * 16, 0), raw.q[1] = load16_shared(slab + lane() * 16, 512);
    K::read(raw.k, slab, 1024);
  }
  DEVICE void values(const Raw &raw, int i, int p, float &low, float &high) {
    u32 word = word_of(raw.q[i / 4], i % 4);
    float a, b;
    K::affine<4>(raw.k, i, p, a, b);
    low = fma_rn(a, whole<4>(nibble<4>(word, p, 0)), b), high = fma_rn(a, whole<4>(nibble<4>(word, p, 1)), b);
  }
};

struct Q5_K {
  static const int BYTES = 2 * 512 + 256 + 192, STAGES = 5;
  struct Raw { bytes16 q[2]; bytes8 fifth; K k; };
  DEVICE void read(Raw &raw, u32 slab) {
    raw.q[0] = load16_shared(slab + lane() * 16, 0), raw.q[1] = load16_shared(slab + lane() * 16, 512);
    raw.fifth = load8_shared(slab + lane() * 8, 1024);
    K::read(raw.k, slab, 1280);
  }
  DEVICE void values(const Raw &raw, int i, int p, float &low, float &high) {
    u32 word = word_of(raw.q[i / 4], i % 4), fifth = (i < 4 ? raw.fifth.x : raw.fifth.y) >> i % 4 * 8;
    float a, b;
    K::affine<5>(raw.k, i, p, a, b);
    low = fma_rn(a, whole<5>(nibble<5>(word, p, 0) | (fifth << (22 - p) & 0x00400000)), b);
    high = fma_rn(a, whole<5>(nibble<5>(word, p, 1) | (fifth << (18 - p) & 0x00400000)), b);
  }
};

struct Q6_K { // integers of 6 bits less 32; each 16 have a scale of 8 bits
  static const int BYTES = 2 * 512 + 512 + 128 + 32, STAGES = 5;
  struct Raw { bytes16 q[2], upper, scales; u32 d; };
  DEVICE void read(Raw &raw, u32 slab) {
    raw.q[0] = load16_shared(slab + lane() * 16, 0), raw.q[1] = load16_shared(slab + lane() * 16, 512);
    raw.upper = load16_shared(slab + lane() * 16, 1024);
    raw.scales = load16_shared(slab + lane() / 4 * 16, 1536);
    raw.d = load4_shared(slab + lane() / 4 * 4, 1664);
  }
  DEVICE void values(const Raw &raw, int i, int p, float &low, float &high) {
    u32 word = word_of(raw.q[i / 4], i % 4), upper = word_of(raw.upper, i / 2) >> i % 2 * 16;
    int sixteen = i / 2 * 2 + lane() % 4 / 2; // of the slab
    u32 scales = word_of(raw.scales, p % 2 * 2 + i / 4) >> sixteen % 4 * 8 & 255; // plus 128
    float a = mul_rn(half_at(raw.d, p % 2), add_rn(float_of(0x4b000000 | scales), -8388736)), b = mul_rn(a, -96);
    low = fma_rn(a, whole<6>(nibble<6>(word, p, 0) | (upper << (21 - 2 * p) & 0x00600000)), b);
    high = fma_rn(a, whole<6>(nibble<6>(word, p, 1) | (upper << (13 - 2 * p) & 0x00600000)), b);
  }
};

// Weights of the type of the activations.
struct Plain {
  static const int BYTES = 8 * 512, STAGES = 3;
  struct Raw { bytes16 q[8]; }; // operands of mma 0 to 7
  DEVICE void read(Raw &raw, u32 slab) {
    UNROLL
    for (int i = 0; i < 8; i++) raw.q[i] = load16_shared(slab + lane() * 16, i * 512);
  }
};
DEVICE void plain_fragment(u32 *a, const bytes16 &x) { a[0] = x.x, a[1] = x.y, a[2] = x.z, a[3] = x.w; }

// load_slab begins to copy a warp's slab to shared memory.
template <class F> DEVICE void load_slab(u32 to, const char *from) {
  UNROLL
  for (int i = 0; i < (F::BYTES / 16 + 31) / 32; i++) {
    if (i * 32 + 31 < F::BYTES / 16 || i * 32 + lane() < F::BYTES / 16)
      cp_async16(to + (i * 32 + lane()) * 16, from + (i * 32 + lane()) * 16, 16);
  }
}

// fragment is the operand of mma i of a slab (0 to 7).
template <class T, class F> DEVICE void fragment(u32 *a, const typename F::Raw &raw, int i) {
  if constexpr (__is_same(F, Plain)) {
    plain_fragment(a, raw.q[i]);
  } else {
    UNROLL
    for (int p = 0; p < 4; p++) {
      float low, high;
      F::values(raw, i, p, low, high);
      a[p] = Format<T>::pack(low, high);
    }
  }
}
