// What kernels with mma have in common: types of elements, and rows in shared memory.
#pragma once
#include "device.h"

// A Format is a type of 16 bits as mma takes it.
template <class T> struct Format;
template <> struct Format<half> {
  static const u32 ONES = 0x3c003c00;
  DEVICE void mma(float *d, const u32 *a, const u32 *b) { mma_f16(d, a, b, d); }
  DEVICE u32 pack(float low, float high) { return pack_half(low, high); }
};
template <> struct Format<bfloat> {
  static const u32 ONES = 0x3f803f80;
  DEVICE void mma(float *d, const u32 *a, const u32 *b) { mma_bf16(d, a, b, d); }
  DEVICE u32 pack(float low, float high) { return pack_bfloat(low, high); }
};

// Rows of D elements in shared memory. A row has PITCH units of 16 bytes. The units of a row are permuted so that
// neither four units of two neighbouring rows nor one unit of eight rows meet in a bank. The permutation is that of the
// row 8 rows before.
template <int D> struct Rows {
  static const int UNITS = D / 8, PITCH = (UNITS + 3) / 4 * 4, BYTES = PITCH * 16;
  DEVICE u32 at(u32 row, u32 unit) {
    u32 swap = row >> 1 & 3;
    if (PITCH % 8 == 0) swap |= (row & 1) << 2;
    return row * BYTES + (unit ^ swap) * 16;
  }
};

// Addresses of one row's units in few registers: unit first + i * by is at[i % (8 / by)] + i / (8 / by) * 128.
template <int D, int BY> struct Units {
  static const int N = 8 / BY;
  u32 at[N];
  DEVICE Units of(u32 rows, u32 row, u32 first) {
    Units x;
    UNROLL
    for (int i = 0; i < N; i++) x.at[i] = rows + Rows<D>::at(row, first + i * BY);
    return x;
  }
};
